#include "compiler/model/Layer.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <numeric>

using namespace sluice;

namespace {

Model transformer(const std::string &fields, const std::string &rest = "") {
  Diagnostics diagnostics;
  std::optional<Spec> spec =
      parseSpec("sluice: 1\nmodel:\n  transformer: {" + fields + "}\n" + rest,
                "spec.yaml", {}, diagnostics);
  std::optional<Model> model =
      spec ? buildModel(*spec, diagnostics) : std::nullopt;
  INFO(diagnostics.render());
  REQUIRE(model);
  return *model;
}

uint64_t parameters(const Model &model) {
  return std::accumulate(
      model.layers.begin(), model.layers.end(), uint64_t(0),
      [](uint64_t sum, const Layer &layer) { return sum + layer.parameters; });
}

/// h 64, f 256, T = 2 * 32 tokens.
const std::string kTiny =
    "layers: 3, hidden: 64, heads: 4, vocab: 256, sequence: 32";
const std::string kBatch = "pipeline: {microbatch_size: 2}\n";

} // namespace

// Published shapes and the counts that their checkpoints give.
TEST_CASE("model: parameters of published transformers") {
  const std::string gpt = "vocab: 51200, sequence: 2048, tied_embeddings: true";
  auto megatron = [&](int layers, int hidden, int heads) {
    return parameters(transformer(gpt + ", layers: " + std::to_string(layers) +
                                  ", hidden: " + std::to_string(hidden) +
                                  ", heads: " + std::to_string(heads)));
  };
  CHECK(megatron(96, 12288, 96) == 174'615'846'912); // GPT-3 175B
  CHECK(megatron(48, 6144, 64) == 22'074'273'792);
  CHECK(megatron(80, 12288, 96) == 145'622'261'760);
  CHECK(megatron(105, 20480, 128) == 529'600'819'200);
  CHECK(megatron(128, 25600, 160) == 1'008'038'758'400);
  // OPT-175B keeps 2050 positions.
  CHECK(parameters(transformer(
            "layers: 96, hidden: 12288, heads: 96, vocab: 50272, "
            "sequence: 2048, positions: 2050, tied_embeddings: true")) ==
        174'604'468'224);

  const std::string llama = "kv_heads: 8, vocab: 128256, gated_ffn: true, "
                            "norm: rms, position: rope, bias: false, "
                            "sequence: 8192";
  Model small =
      transformer(llama + ", layers: 32, hidden: 4096, ffn: 14336, heads: 32");
  CHECK(small.layers[1].parameters == 218'112'000);
  CHECK(parameters(small) == 8'030'261'248);
  Model large =
      transformer(llama + ", layers: 80, hidden: 8192, ffn: 28672, heads: 64");
  CHECK(large.layers[1].parameters == 855'654'400);
  CHECK(parameters(large) == 70'553'706'496);
  // BLOOM-176B but for the norm of its embedding, 2 x 14336.
  CHECK(parameters(transformer(
            "layers: 70, hidden: 14336, heads: 112, vocab: 250880, "
            "sequence: 2048, position: alibi, tied_embeddings: true")) ==
        176'247'271'424 - 2 * 14336);
}

TEST_CASE("model: layers of a transformer and their order") {
  Model model = transformer(kTiny);
  REQUIRE(model.layers.size() == 5);
  CHECK(model.countedLayers() == 3);
  CHECK(model.layers[0].kind == LayerKind::Embedding);
  CHECK(model.layers[1].kind == LayerKind::Block);
  CHECK(model.layers[3].kind == LayerKind::Block);
  CHECK(model.layers[4].kind == LayerKind::Head);
  CHECK(model.layers[1].location == SourceLocation{0, 3, 3});
}

// P = 12 h^2 = 49152 parameters in matrices; forward 32 (2P + 2*32*64) =
// 3,276,800 operations, backward input 32 (2P + 4*32*64) = 3,407,872, weight
// 32 * 2P = 3,145,728; head 2*64*256*32 = 1,048,576.
TEST_CASE("model: times without a device are in forwards of a block") {
  Model model = transformer(kTiny);
  CHECK(model.timeUnit == TimeUnit::Unit);
  CHECK(model.layers[0].forward == 0);
  CHECK(model.layers[1].forward == 1'000'000);
  CHECK(model.layers[1].backwardInput == 1'040'000);
  CHECK(model.layers[1].backwardWeight == 960'000);
  CHECK(model.layers[4].forward == 320'000);
  CHECK(model.layers[4].backwardInput == 320'000);
  CHECK(model.layers[4].backwardWeight == 320'000);
}

TEST_CASE("model: times with a device are operations over its speed") {
  Model model =
      transformer(kTiny, "cluster: {device: {flops: 1T, efficiency: 0.5}}\n");
  CHECK(model.timeUnit == TimeUnit::Seconds); // ticks of 1e-12 s
  CHECK(model.layers[1].forward == 6'553'600);
  CHECK(model.layers[1].backwardInput == 6'815'744);
  CHECK(model.layers[1].backwardWeight == 6'291'456);
  CHECK(model.layers[4].forward == 2'097'152);
}

// Forward and backward of one block per token: 72 h^2 + 6 s h with the causal
// half of 12 s h (Narayanan et al., SC21, equation for a block, without
// recompute).
TEST_CASE("model: costs of GPT-3 match the published count of operations") {
  Model model = transformer("layers: 96, hidden: 12288, heads: 96, "
                            "vocab: 51200, sequence: 2048",
                            "cluster: {device: {flops: 1P}}\n");
  const Layer &block = model.layers[1];
  double ticks = static_cast<double>(block.forward + block.backwardInput +
                                     block.backwardWeight);
  double h = 12288, s = 2048;
  double operations = s * (72 * h * h + 6 * s * h);
  CHECK(ticks == Approx(operations / 1e15 * 1e12).epsilon(1e-9));
}

TEST_CASE("model: saved bytes of a block, 16 bits") {
  const Bytes sbh = 32 * 2 * 64, s = 32, a = 4, h = 64;
  Layer plain = transformer(kTiny, kBatch).layers[1];
  CHECK(plain.activation == 32 * sbh);
  CHECK(plain.keptForWeight == 32 * sbh);
  CHECK(plain.output == 2 * sbh);
  // Korthikanti et al.: sbh (34 + 5as/h) with dropout.
  Layer dropout = transformer(kTiny + ", dropout: true", kBatch).layers[1];
  CHECK(dropout.activation == 34 * sbh);
  CHECK(dropout.keptForWeight == 32 * sbh);
  Layer both =
      transformer(kTiny + ", dropout: true, flash_attention: false", kBatch)
          .layers[1];
  CHECK(both.activation == 34 * sbh + 5 * a * s * sbh / h);
  CHECK(both.keptForWeight == 32 * sbh);
  Layer matrix =
      transformer(kTiny + ", flash_attention: false", kBatch).layers[1];
  CHECK(matrix.activation == 32 * sbh + 4 * a * s * sbh / h);
}

// 6h + 2k + 3f = 384 + 32 + 900 numbers per token, 4 bytes, 64 tokens.
TEST_CASE("model: saved bytes of a gated block with shared keys, 32 bits") {
  Model model = transformer(
      kTiny + ", ffn: 300, gated_ffn: true, kv_heads: 1, dtype: fp32", kBatch);
  CHECK(model.layers[1].activation == 1316 * 4 * 64);
  CHECK(model.layers[1].keptForWeight == 1316 * 4 * 64);
  CHECK(model.layers[1].output == 64 * 4 * 64);
  // 4h + 2f = 856 numbers per token, and two matrices of 32 x 32.
  CHECK(model.layers[1].workspace == 4 * (856 * 64 + 2 * 32 * 32));
}

TEST_CASE("model: bytes of embedding and head") {
  Model model = transformer(kTiny + ", dtype: fp32", kBatch);
  const Layer &embedding = model.layers[0], &head = model.layers[4];
  CHECK(embedding.activation == 0);
  CHECK(embedding.keptForWeight == 0);
  CHECK(embedding.workspace == 0);
  CHECK(embedding.output == 64 * 4 * 64);
  CHECK(head.activation == (2 * 64 + 256) * 4 * 64);
  CHECK(head.keptForWeight == (64 + 256) * 4 * 64);
  CHECK(head.workspace == 2 * 64 * 4 * 64);
  CHECK(head.output == 0);
}

TEST_CASE("model: training state by number format, unless the spec says") {
  Model fp32 = transformer(kTiny + ", dtype: fp32");
  CHECK(fp32.parameterBytes == 4);
  CHECK(fp32.gradientBytes == 4);
  CHECK(fp32.optimizerBytes == 8);
  Model bf16 = transformer(kTiny + ", dtype: bf16");
  CHECK(bf16.parameterBytes == 2);
  CHECK(bf16.gradientBytes == 4);
  CHECK(bf16.optimizerBytes == 12);
  Diagnostics diagnostics;
  std::optional<Spec> spec =
      parseSpec("sluice: 1\nmodel:\n  optimizer_bytes: 5\n  transformer: {" +
                    kTiny + ", dtype: fp32}\n",
                "spec.yaml", {}, diagnostics);
  REQUIRE(spec);
  CHECK(buildModel(*spec, diagnostics)->optimizerBytes == 5);
}

TEST_CASE("model: description for the stage modules") {
  CHECK(transformer(kTiny + ", dtype: fp32", kBatch).description ==
        "kind=gpt\nhidden=64\nffn=256\ngated_ffn=0\nheads=4\nkv_heads=4\n"
        "vocab=256\nsequence=32\npositions=32\nmicrobatch_size=2\nlayers=3\n"
        "bias=1\nnorm=layer\nposition=learned\ntied_embeddings=0\n"
        "dtype=fp32\n");
  std::string dropout = transformer(kTiny + ", dropout: true").description;
  CHECK(dropout.find("\ndropout=1\n") != std::string::npos);
}
