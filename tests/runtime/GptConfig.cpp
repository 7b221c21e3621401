//===- tests/runtime/GptConfig.cpp - What the gpt module takes and needs -===//
#include "runtime/modules/gpt/Module.h"
#include "tests/Catch.h"
#include "tests/runtime/GptDriver.h"

#include <cstring>

using namespace sluice::test;

namespace {

using Keys = std::map<std::string, std::string>;

constexpr GptPart kWhole{0, 2, true, true};

/// The message with which a stage is refused; "" if it is taken.
std::string refusal(const std::string &description, const std::string &run,
                    uint32_t inputs = 0, uint32_t outputs = 0,
                    uint32_t parts = 1) {
  const uint32_t other = 1;
  sluice_stage stage{};
  stage.optimizer_parts = stage.gradient_parts = parts;
  stage.stages = stage.ranks = 1;
  stage.microbatches = 2;
  stage.replicas = 1;
  stage.input_stages = stage.output_stages = &other;
  stage.input_count = inputs;
  stage.output_count = outputs;
  stage.description = description.c_str();
  stage.run = run.c_str();
  void *instance = nullptr;
  sluice_error error;
  if (sluice_gpt_module()->create(&stage, &instance, &error) != 0)
    return error.message;
  sluice_gpt_module()->destroy(instance);
  return "";
}

std::string refusal(const Keys &changes,
                    const std::string &run = "data=" + GptShape().data) {
  Keys keys = gptKeys(GptShape(), kWhole);
  for (const auto &[key, value] : changes)
    keys[key] = value;
  return refusal(gptLines(keys), run);
}

std::string refusalWithout(const std::vector<std::string> &removed) {
  Keys keys = gptKeys(GptShape(), kWhole);
  for (const std::string &key : removed)
    keys.erase(key);
  return refusal(gptLines(keys), "data=" + GptShape().data);
}

std::string refusalOfData(const std::string &content) {
  TemporaryFile file(content);
  std::string message = refusal(Keys{{"vocab", "200"}}, "data=" + file.path);
  size_t at = message.find(file.path);
  return at == std::string::npos ? message : message.substr(0, at) + "FILE";
}

} // namespace

TEST_CASE("gpt: a stage of the kind it computes is taken") {
  CHECK(refusal(Keys{}) == "");
  CHECK(refusal({{"dropout", "0"}}) == "");
  CHECK(refusal({{"tied_embeddings", "1"}}) == "");
}

TEST_CASE("gpt: sums of a part of the gradients do where no more is needed") {
  const auto inParts = [](const std::string &tied, const std::string &run) {
    Keys keys = gptKeys(GptShape(), kWhole);
    keys["tied_embeddings"] = tied;
    return refusal(gptLines(keys), "data=" + GptShape().data + run, 0, 0, 2);
  };
  const std::string whole =
      "the gradients are summed in 2 parts, the step needs them whole";
  CHECK(inParts("0", "") == "");
  CHECK(inParts("1", "") == whole);
  CHECK(inParts("0", "\nclip_norm=0.5") == whole);
  CHECK(inParts("0", "\ngradient_groups=2") == whole);
}

TEST_CASE("gpt: what it does not compute is refused by name") {
  CHECK(refusal({{"kind", "bert"}}) ==
        "kind is 'bert', this module computes only 'gpt'");
  CHECK(refusal({{"gated_ffn", "1"}}) ==
        "gated_ffn is '1', this module computes only '0'");
  CHECK(refusal({{"bias", "0"}}) ==
        "bias is '0', this module computes only '1'");
  CHECK(refusal({{"norm", "rms"}}) ==
        "norm is 'rms', this module computes only 'layer'");
  CHECK(refusal({{"position", "rope"}}) ==
        "position is 'rope', this module computes only 'learned'");
  CHECK(refusal({{"dtype", "bf16"}}) ==
        "dtype is 'bf16', this module computes only 'fp32'");
  CHECK(refusal({{"dropout", "1"}}) ==
        "dropout is '1', this module computes only '0'");
  CHECK(refusal({{"experts", "8"}}) ==
        "experts is '8', this module computes only '0'");
  CHECK(refusal({{"qkv_bias", "0"}}) ==
        "qkv_bias is '0', this module computes only '1'");
  CHECK(refusal({{"tensor_parallel", "2"}, {"zero", "1"}}) ==
        "tensor_parallel is '2', this module computes only '1'; zero is '1', "
        "this module computes only '0'");
  CHECK(refusal({{"head_dim", "8"}}) ==
        "key 'head_dim' is not known to this module");
  CHECK(refusal({{"kv_heads", "1"}}) ==
        "kv_heads is 1 and heads is 2, this module computes only as many of "
        "both");
  CHECK(refusal({{"gated_ffn", "1"}, {"norm", "rms"}}) ==
        "gated_ffn is '1', this module computes only '0'; norm is 'rms', this "
        "module computes only 'layer'");
}

TEST_CASE("gpt: numbers that do not fit together are refused") {
  CHECK(refusal({{"hidden", "9"}}) == "hidden is 9, not divisible by 2 heads");
  CHECK(refusal({{"sequence", "7"}}) ==
        "sequence is 7, longer than the 6 positions");
  CHECK(refusal({{"stage_layers", "3"}}) == "the stage ends at layer 3 of 2");
  CHECK(refusal({{"first_layer", "1"}, {"stage_layers", "1"}}) ==
        "the stage has the embedding but starts at layer 1");
  CHECK(refusal({{"stage_layers", "1"}}) ==
        "the stage has the head but ends at layer 1 of 2");
  CHECK(refusal({{"embedding", "0"}}) ==
        "the stage has 0 inputs, a stage without the embedding has one");
  CHECK(refusal(gptLines(gptKeys(GptShape(), kWhole)), "", 0, 2) ==
        "the stage has 2 outputs, a stage with the head has none");
}

TEST_CASE("gpt: sizes beyond the matrix library or 63 bits are refused") {
  CHECK(refusal({{"microbatch_size", "429496730"}}) ==
        "sequence times microbatch_size is 2147483650, over the limit of "
        "2147483647");
  CHECK(refusal({{"hidden", "715827884"}}) ==
        "three times hidden is 2147483652, over the limit of 2147483647");
  CHECK(refusal({{"ffn", "2147483648"}}) ==
        "ffn is 2147483648, over the limit of 2147483647");
  CHECK(refusal({{"vocab", "4294967295"}}) ==
        "vocab is 4294967295, over the limit of 2147483647");
  CHECK(refusal({{"hidden", "715827882"},
                 {"ffn", "2147483647"},
                 {"layers", "4294967295"},
                 {"stage_layers", "4294967295"},
                 {"microbatch_size", "400000000"}}) ==
        "the stage needs more than 9223372036854775807 bytes");
}

TEST_CASE("gpt: malformed descriptions are refused") {
  CHECK(refusalWithout({"hidden", "dtype", "head"}) ==
        "the stage's description lacks dtype, hidden, head");
  CHECK(refusal({{"hidden", "0"}}) ==
        "hidden is '0', not a whole number from 1 to 4294967295");
  CHECK(refusal({{"hidden", "4294967296"}}) ==
        "hidden is '4294967296', not a whole number from 1 to 4294967295");
  CHECK(refusal({{"layers", "-1"}}) ==
        "layers is '-1', not a whole number from 0 to 4294967295");
  CHECK(refusal({{"head", "yes"}}) == "head is 'yes', not 0 or 1");
  const std::string lines = gptLines(gptKeys(GptShape(), kWhole));
  CHECK(refusal(lines + "hidden=8\n", "") ==
        "key 'hidden' of the description is given twice");
  CHECK(refusal(lines + "rubbish\n", "") ==
        "line 'rubbish' of the description has no '='");
  CHECK(refusal({{"kind", std::string(300, 'x')}}) ==
        "kind is '" + std::string(60, 'x') +
            "...', this module computes only 'gpt'");
  CHECK(refusal("", "") ==
        "the stage's description lacks kind, gated_ffn, bias, norm, position, "
        "dtype, hidden, ffn, heads, kv_heads, vocab, sequence, positions, "
        "microbatch_size, layers, first_layer, stage_layers, embedding, head, "
        "tied_embeddings");
}

TEST_CASE("gpt: a message longer than its room is cut visibly") {
  Keys changes;
  for (const char *key : {"hidden", "ffn", "heads", "kv_heads", "vocab"})
    changes[key] = "none";
  std::string message = refusal(changes);
  CHECK(message.size() == 255);
  CHECK(message.ends_with("..."));
}

TEST_CASE("gpt: run values that are no numbers are refused") {
  CHECK(refusal(Keys{}, "learning_rate=nan") ==
        "learning_rate is 'nan', not a finite number from 0 up");
  CHECK(refusal(Keys{}, "learning_rate=-1") ==
        "learning_rate is '-1', not a finite number from 0 up");
  CHECK(refusal(Keys{}, "seed=1.5") ==
        "seed is '1.5', not a whole number from 0 to 18446744073709551615");
}

TEST_CASE("gpt: data that gives no samples is refused") {
  CHECK(refusal(Keys{}, "steps=3") ==
        "the run section names no data file, and this stage reads tokens: "
        "give run.data or --data=FILE");
  CHECK(refusal(Keys{}, "data=/no/such/file") ==
        "cannot read the data file: No such file or directory: /no/such/file");
  CHECK(refusal(Keys{}, "data=/") ==
        "cannot read the data file: not a regular file: /");
  CHECK(refusalOfData("") == "cannot read the data file: it is empty: FILE");
  CHECK(refusalOfData("abcde") ==
        "cannot read the data file: it has 5 bytes, fewer than the 6 of a "
        "sample: FILE");
  CHECK(refusalOfData("abcdef") == "");
  CHECK(refusalOfData("abc\xc8"
                      "def") ==
        "cannot read the data file: its byte 3 is 200, not below the "
        "vocabulary of 200: FILE");
}

TEST_CASE("gpt: a stage without embedding and head needs no data") {
  Keys keys = gptKeys(GptShape(), {1, 1, false, false});
  CHECK(refusal(gptLines(keys), "", 1, 1) == "");
}

TEST_CASE("gpt: byte needs are those of the formulas") {
  GptShape shape;
  shape.rows = 3;
  shape.vocab = 256;
  shape.layers = 5;
  const uint64_t h = shape.hidden, ffn = shape.ffn, v = shape.vocab;
  const uint64_t s = shape.sequence, t = shape.tokens();
  const uint64_t embedding = v * h + shape.positions * h;
  // Two norms; three, one and two matrices with their biases.
  const uint64_t block = 2 * 2 * h + 3 * (h * h + h) + (h * h + h) +
                         (ffn * h + ffn) + (h * ffn + h);
  const uint64_t head = v * h + 2 * h;
  struct Case {
    GptPart part;
    uint64_t parameters, saved, kept, workspace;
  };
  const uint64_t blockKept = t * (8 * h + 2 * ffn);
  const uint64_t blockSpace = t * (4 * h + 2 * ffn) + 2 * s * s;
  const Case cases[] = {
      {{0, 0, true, false}, embedding, 0, 0, 0},
      {{1, 3, false, false}, 3 * block, 0, 3 * blockKept, blockSpace},
      {{2, 0, false, false}, 0, 0, 0, 0},
      {{5, 0, false, true}, head, t * h, t * (h + v), 2 * t * h},
      {{0, 5, true, true},
       embedding + 5 * block + head,
       t * h,
       5 * blockKept + t * (h + v),
       blockSpace}};
  for (const Case &expected : cases) {
    GptStage stage(sluice_gpt_module(), shape, expected.part);
    const sluice_bytes &bytes = stage.bytes;
    CHECK(bytes.parameters == 4 * expected.parameters);
    CHECK(bytes.gradients == 4 * expected.parameters);
    CHECK(bytes.optimizer == 8 * expected.parameters);
    CHECK(bytes.saved == 4 * expected.saved);
    CHECK(bytes.kept == 4 * expected.kept);
    CHECK(bytes.workspace == 4 * expected.workspace);
    CHECK(bytes.input == (expected.part.embedding ? 0 : 4 * t * h));
    CHECK(bytes.output == (expected.part.head ? 0 : 4 * t * h));
  }
}

TEST_CASE("gpt: a call without the buffers it needs fails") {
  GptShape shape;
  GptStage stage(sluice_gpt_module(), shape, {1, 1, false, false});
  AlignedBytes whole(stage.bytes.input), half(stage.bytes.input / 2);
  stage.beginStep(0);
  CHECK_THROWS_WITH(stage.forward(0, 0, half.buffer(), whole.buffer()),
                    "the input buffer has 160 bytes, the stage needs 320");
  CHECK_THROWS_WITH(stage.forward(0, 0, whole.buffer(), half.buffer()),
                    "the output buffer has 160 bytes, the stage needs 320");
  CHECK_THROWS_WITH(
      stage.backwardInput(0, 0, half.buffer(), whole.buffer()),
      "the output gradient buffer has 160 bytes, the stage needs 320");
}
