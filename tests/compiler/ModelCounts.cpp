//===- tests/compiler/ModelCounts.cpp - Parameters of published models ---===//
//
// tests/data/models.json has shapes of published models with their counts.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Layer.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"
#include "tests/Repository.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <map>
#include <numeric>

using namespace sluice;

namespace {

struct Counts {
  uint64_t all = 0, active = 0, block = 0;
};

Counts countsOf(const std::string &fields) {
  Diagnostics diagnostics;
  std::optional<Spec> spec =
      parseSpec("sluice: 1\nmodel:\n  transformer: {" + fields + "}\n",
                "spec.yaml", {}, diagnostics);
  std::optional<Model> model =
      spec ? buildModel(*spec, diagnostics) : std::nullopt;
  INFO(fields + "\n" + diagnostics.render());
  REQUIRE(model);
  Counts counts;
  for (const Layer &layer : model->layers) {
    counts.all += layer.parameters;
    counts.active += layer.activeParameters;
  }
  counts.block = model->layers[1].parameters;
  return counts;
}

/// What `arch` of the file says in the words of a spec. What it leaves out is
/// as in all models of its kind: models with experts have gated MLPs and RMS
/// norms; where no bias is named there is none.
std::string fieldsOf(const llvm::json::Object &arch) {
  std::map<std::string, std::string> fields{
      {"bias", "false"}, {"sequence", "2048"}, {"position", "rope"}};
  if (arch.get("experts"))
    fields["gated_ffn"] = "true", fields["norm"] = "rms";
  for (const auto &[name, value] : arch) {
    std::string key = name.str(), text = llvm::formatv("{0}", value).str();
    if (key == "vocab_note")
      continue;
    if (key == "pos") { // "learned", "alibi", or "learned 2050"
      auto [kind, count] = value.getAsString()->split(' ');
      fields["position"] = kind.str();
      if (!count.empty())
        fields["positions"] = count.str();
      continue;
    }
    fields[key] = text;
  }
  std::string out;
  for (const auto &[key, value] : fields)
    out += (out.empty() ? "" : ", ") + key + ": " + value;
  return out;
}

} // namespace

TEST_CASE("model: parameters of every model of models.json") {
  auto file = llvm::MemoryBuffer::getFile(
      tests::inRepository("tests/data/models.json"));
  REQUIRE(file);
  llvm::Expected<llvm::json::Value> models =
      llvm::json::parse((*file)->getBuffer());
  REQUIRE(bool(models));
  unsigned seen = 0;
  for (const llvm::json::Value &entry : *models->getAsArray()) {
    const llvm::json::Object &model = *entry.getAsObject();
    INFO(model.getString("name")->str());
    Counts counts = countsOf(fieldsOf(*model.getObject("arch")));
    CHECK(counts.all == uint64_t(*model.getInteger("params_computed")));
    if (std::optional<int64_t> block = model.getInteger("layer_params"))
      CHECK(counts.block == uint64_t(*block));
    // Without experts a token uses every matrix.
    CHECK(((counts.active == counts.all) !=
           bool(model.getObject("arch")->get("experts"))));
    ++seen;
  }
  CHECK(seen == 12);
}

// Of Mixtral's 8 experts of 3 * 4096 * 14336 parameters each a token leaves 6
// unused in each of 32 layers; of DeepSeek-V2's 160 of 3 * 5120 * 1536 it
// leaves 154 in 59.
TEST_CASE("model: active parameters of models with experts") {
  Counts mixtral = countsOf(
      "layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: "
      "32000, experts: 8, topk: 2, gated_ffn: true, bias: false, norm: rms, "
      "position: rope, sequence: 4096");
  CHECK(mixtral.all == 46'702'792'704);
  CHECK(mixtral.all - mixtral.active == 32ull * 6 * 3 * 4096 * 14336);
  CHECK(mixtral.active == 12'879'925'248); // "12.9B", arXiv 2401.04088
  const std::string deepseek =
      "layers: 60, dense_layers: 1, hidden: 5120, ffn: 12288, heads: 128, "
      "q_lora_rank: 1536, kv_lora_rank: 512, qk_nope: 128, qk_rope: 64, "
      "v_head: 128, experts: 160, moe_ffn: 1536, topk: 6, shared_experts: 2, "
      "vocab: 102400, gated_ffn: true, bias: false, norm: rms, position: rope, "
      "sequence: 4096";
  Counts v2 = countsOf(deepseek);
  CHECK(v2.all - v2.active == 59ull * 154 * 3 * 5120 * 1536);
  // A layer of multi-token prediction: a block with experts (235,741,434,880
  // less ends and dense block, over 59), a matrix 2h x h, and three norms.
  const uint64_t h = 5120, vocab = 102400;
  uint64_t attention = h * 1536 + 1536 + 1536 * 128 * 192 + h * 576 + 512 +
                       512 * 128 * 256 + 128 * 128 * h;
  uint64_t ends = 2 * vocab * h + h;
  uint64_t block = attention + 2 * h + h * 160 + 162 * 3 * h * 1536;
  CHECK(v2.all == ends + attention + 2 * h + 3 * h * 12288 + 59 * block);
  CHECK(countsOf(deepseek + ", mtp_layers: 1").all - v2.all ==
        block + 2 * h * h + 3 * h);
}

// Against a block of h 64, f 256, 4 heads of 16: what each variant adds.
TEST_CASE("model: parameters that variants of a block add") {
  const std::string biased = "layers: 3, hidden: 64, heads: 4, vocab: 256, "
                             "sequence: 32, position: rope";
  const std::string plain = biased + ", bias: false";
  uint64_t block = countsOf(plain).block;
  auto added = [&](const std::string &fields) {
    return countsOf(plain + ", " + fields).block - block;
  };
  CHECK(added("qkv_bias: true") == 3 * 64);
  CHECK(added("qkv_bias: true, kv_heads: 4") == 3 * 64);
  CHECK(added("output_bias: true") == 64);
  CHECK(added("mlp_bias: true") == 256 + 64);
  CHECK(countsOf(biased).block - block == 4 * 64 + 256 + 64);
  CHECK(countsOf(biased + ", mlp_bias: false").block - block == 4 * 64);
  CHECK(added("qk_norm: true, norm: layer") == 2 * 2 * 16);
  CHECK(added("post_norms: true") == 2 * 2 * 64);
  // Heads of 32 numbers: queries, keys, values and output twice as wide.
  CHECK(added("head_dim: 32") == 4 * 64 * 64);
  // A router, three more experts.
  CHECK(added("experts: 4, topk: 1") == 64 * 4 + 3 * 2 * 64 * 256);
  CHECK(added("experts: 4, topk: 1, router_bias: true") ==
        64 * 4 + 4 + 3 * 2 * 64 * 256);
  CHECK(added("experts: 4, topk: 1, moe_ffn: 512, shared_experts: 2, "
              "shared_expert_gate: true") ==
        64 * 4 + 6 * 2 * 64 * 512 - 2 * 64 * 256 + 64);
  Counts embedded = countsOf(plain + ", embed_layernorm: true");
  CHECK(embedded.all - countsOf(plain).all == 2 * 64);
  // Without q_lora_rank queries come from the input: 64 -> 4 * (8 + 4).
  Counts latent = countsOf(plain + ", kv_lora_rank: 16, qk_nope: 8, "
                                   "qk_rope: 4, v_head: 8, norm: rms");
  CHECK(latent.block ==
        64 * 48 + 64 * 20 + 16 + 16 * 4 * 16 + 32 * 64 + 2 * 64 + 2 * 64 * 256);
}
