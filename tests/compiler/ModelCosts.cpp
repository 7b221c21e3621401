//===- tests/compiler/ModelCosts.cpp - Operations, bytes and their times --===//
//
// The numbers are derived by hand from the rules of model/Costs.cpp, for
// h 64, 4 heads of 16, f 256, 256 words, s 32, one sequence: 32 tokens, 2 bytes
// a number, 4 a gradient.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Layer.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include "llvm/ADT/STLExtras.h"

#include <cstdlib>

using namespace sluice;

namespace {

const std::string kTiny =
    "layers: 1, hidden: 64, heads: 4, vocab: 256, sequence: 32";
const std::string kMoe = kTiny + ", experts: 8, topk: 2, moe_ffn: 32";

Model build(const std::string &fields, const std::string &pipeline = "",
            const std::string &device = "") {
  Diagnostics diagnostics;
  std::optional<Spec> spec = parseSpec(
      "sluice: 1\nmodel: {transformer: {" + fields + "}}\npipeline: {" +
          pipeline + "}\ncluster: {device: {" + device + "}}\n",
      "spec.yaml", {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(spec);
  std::optional<Model> model = buildModel(*spec, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(model);
  return *model;
}

/// The row of a layer, or none.
const CostRow *find(const Model &model, std::string_view layer,
                    std::string_view kind, CostPass pass) {
  const CostRow *found = nullptr;
  for (const CostRow &row : model.costs)
    if (row.layer == layer && row.kind == kind && row.pass == pass) {
      CHECK(!found);
      found = &row;
    }
  return found;
}

using Numbers = std::pair<uint64_t, uint64_t>; ///< operations and bytes

Numbers work(const Model &model, std::string_view layer, std::string_view kind,
             CostPass pass = CostPass::Forward) {
  const CostRow *row = find(model, layer, kind, pass);
  return row ? Numbers(toCount(row->work.flops), toCount(row->work.bytes))
             : Numbers(0, 0);
}

constexpr CostPass F = CostPass::Forward, I = CostPass::BackwardInput,
                   W = CostPass::BackwardWeight;

} // namespace

TEST_CASE("costs: a block's matrices read weights and tokens, write tokens") {
  Model tiny = build(kTiny);
  // Q and output 64 x 64, keys and values 64 x 128: 16384 numbers.
  const uint64_t flops = 2 * 32 * 16384;
  CHECK(work(tiny, "dense_block", "projections", F) ==
        Numbers(flops, 2 * (2 * (4096 + 2048 + 2048) + 8192 + 2048 + 4096)));
  CHECK(work(tiny, "dense_block", "projections", I) ==
        work(tiny, "dense_block", "projections", F));
  // Each gradient of 4 bytes is read and written.
  CHECK(work(tiny, "dense_block", "projections", W) ==
        Numbers(flops, 2 * (2 * (2048 + 2048) + 2048 + 4096) + 8 * 16384));
  CHECK(work(tiny, "dense_block", "mlp", F) ==
        Numbers(2 * 32 * 32768, 2 * 2 * (16384 + 2048 + 8192)));
  CHECK(work(tiny, "dense_block", "mlp", W) ==
        Numbers(2 * 32 * 32768, 2 * 2 * (2048 + 8192) + 8 * 32768));
}

TEST_CASE("costs: attention with and without the matrix in memory") {
  // Of a token 64 numbers each of queries, keys, values and output.
  Model flash = build(kTiny);
  CHECK(work(flash, "dense_block", "attention", F) ==
        Numbers(32 * 32 * 128, 32 * 2 * 4 * 64));
  CHECK(work(flash, "dense_block", "attention", I) ==
        Numbers(2 * 32 * 32 * 128, 32 * 2 * 8 * 64));
  CHECK(work(flash, "dense_block", "attention", W) == Numbers(0, 0));
  // 4 heads of 32 x 32: in 16 bits 8 bytes forward and 14 backward, with
  // dropout 5 more.
  Model stored = build(kTiny + ", flash_attention: false");
  CHECK(work(stored, "dense_block", "attention", F).second ==
        32 * 2 * 4 * 64 + 8 * 4096);
  CHECK(work(stored, "dense_block", "attention", I).second ==
        32 * 2 * 8 * 64 + 14 * 4096);
  Model dropped = build(kTiny + ", flash_attention: false, dropout: true");
  CHECK(work(dropped, "dense_block", "attention", F).second ==
        32 * 2 * 4 * 64 + 13 * 4096);
  CHECK(work(dropped, "dense_block", "attention", I).second ==
        32 * 2 * 8 * 64 + 19 * 4096);
  // With one head of keys and values, 16 numbers each of them.
  CHECK(work(build(kTiny + ", kv_heads: 1"), "dense_block", "attention", F)
            .second == 32 * 2 * (2 * 64 + 2 * 16));
  // A ring of two has half of the tokens, and all keys and values pass by.
  CHECK(work(build(kTiny, "context_parallel: 2"), "dense_block", "attention",
             F) == Numbers(16 * 32 * 128, 16 * 2 * (128 + 2 * 128)));
}

TEST_CASE("costs: elementwise work has bytes alone") {
  // Two norms 4h, two sums 6h, an activation function 2f forward; 6h, 6h and
  // 3f backward.
  Model tiny = build(kTiny);
  CHECK(work(tiny, "dense_block", "elementwise", F) ==
        Numbers(0, 32 * 2 * (10 * 64 + 2 * 256)));
  CHECK(work(tiny, "dense_block", "elementwise", I) ==
        Numbers(0, 32 * 2 * (12 * 64 + 3 * 256)));
  CHECK(work(tiny, "dense_block", "elementwise", W) == Numbers(0, 0));
  Model dropped = build(kTiny + ", dropout: true");
  CHECK(work(dropped, "dense_block", "elementwise", F).second ==
        32 * 2 * (10 * 64 + 2 * 256) + 2 * 32 * 64 * 5);
  // Gated: 3f and 5f; rotary: queries and keys read and written.
  Model llama = build(kTiny + ", gated_ffn: true, ffn: 128, position: rope");
  CHECK(work(llama, "dense_block", "elementwise", F).second ==
        32 * 2 * (10 * 64 + 3 * 128 + 2 * 128));
  CHECK(work(llama, "dense_block", "elementwise", I).second ==
        32 * 2 * (12 * 64 + 5 * 128 + 2 * 128));
}

TEST_CASE("costs: embedding, head and loss") {
  Model tiny = build(kTiny);
  // A row of the table and one of the positions are read, one is written.
  CHECK(work(tiny, "embedding", "embedding", F) == Numbers(0, 32 * 64 * 2 * 3));
  CHECK(work(tiny, "embedding", "embedding", W) ==
        Numbers(0, 2 * 32 * 64 * (2 + 8)));
  CHECK(work(build(kTiny + ", position: rope"), "embedding", "embedding", W) ==
        Numbers(0, 32 * 64 * (2 + 8)));
  CHECK(work(tiny, "head", "head", F) ==
        Numbers(2 * 32 * 16384, 2 * (16384 + 2048 + 8192)));
  CHECK(work(tiny, "head", "head", W) ==
        Numbers(2 * 32 * 16384, 2 * (2048 + 8192) + 8 * 16384));
  CHECK(work(tiny, "head", "elementwise", F).second == 32 * 2 * 2 * 64);
  CHECK(work(tiny, "head", "loss", F) == Numbers(0, 2 * 32 * 256 * 2));
  CHECK(work(tiny, "head", "loss", I) == Numbers(0, 2 * 32 * 256 * 2));
}

TEST_CASE("costs: a tensor group divides matrices, and with sequence "
          "parallelism tokens") {
  Model divided = build(kTiny, "tensor_parallel: 4, sequence_parallel: true");
  CHECK(work(divided, "dense_block", "projections", F) ==
        Numbers(2 * 32 * 4096, 2 * (1024 + 2048 + 512 + 2048 + 2048 + 1024 +
                                    1024 + 512 + 2048)));
  CHECK(work(divided, "dense_block", "elementwise", F).second ==
        8 * 2 * 10 * 64 + 32 * 2 * 2 * 64);
  Model whole = build(kTiny, "tensor_parallel: 4");
  CHECK(work(whole, "dense_block", "elementwise", F).second ==
        32 * 2 * 10 * 64 + 32 * 2 * 2 * 64);
  CHECK(work(whole, "dense_block", "attention", F) ==
        Numbers(32 * 32 * 128 / 4, 32 * 2 * 4 * 16));
}

TEST_CASE("costs: experts of a device are all read, by the copies of tokens") {
  Model moe = build(kMoe);
  // Router 64 x 8; 8 experts of 64 x 32 twice, 64 copies of tokens.
  CHECK(work(moe, "expert_block", "experts", F) ==
        Numbers(2 * 32 * 512 + 2 * 2 * 64 * 2048,
                2 * (512 + 2048 + 256) + 2 * 2 * (16384 + 4096 + 2048)));
  CHECK(work(moe, "expert_block", "experts", W).second ==
        2 * (2048 + 256) + 8 * 512 + 2 * (2 * (4096 + 2048) + 8 * 16384));
  CHECK(work(moe, "expert_block", "mlp", F) == Numbers(0, 0));
  // Copies to experts and their sum: 6h; 2 x 32 of the activation function.
  CHECK(work(moe, "expert_block", "elementwise", F).second ==
        32 * 2 * (10 * 64 + 6 * 64 + 2 * 64));
  Model half = build(kMoe, "expert_parallel: 2, data_parallel: 2");
  CHECK(work(half, "expert_block", "experts", F) ==
        Numbers(2 * 32 * 512 + 2 * 2 * 64 * 2048,
                2 * (512 + 2048 + 256) + 2 * 2 * (8192 + 4096 + 2048)));
}

// 1e12 operations and 1e11 bytes a second: ten operations a byte are even.
TEST_CASE("costs: each kind takes the longer of its two") {
  Model tiny = build(kTiny, "",
                     "flops: 2T, efficiency: 0.5, "
                     "bandwidth: 100GB/s");
  auto row = [&](std::string_view layer, std::string_view kind, CostPass pass) {
    const CostRow *found = find(tiny, layer, kind, pass);
    REQUIRE(found);
    return std::pair(found->time, found->bound);
  };
  using Row = std::pair<Ticks, CostBound>;
  CHECK(row("dense_block", "projections", F) ==
        Row(1'048'576, CostBound::Flops));
  CHECK(row("dense_block", "projections", W) ==
        Row(1'597'440, CostBound::Bytes));
  CHECK(row("dense_block", "attention", F) == Row(163'840, CostBound::Bytes));
  CHECK(row("dense_block", "mlp", F) == Row(2'097'152, CostBound::Flops));
  CHECK(row("dense_block", "elementwise", I) == Row(983'040, CostBound::Bytes));
  const Layer &block = tiny.layers[1];
  CHECK(block.forward == 1'048'576 + 163'840 + 2'097'152 + 737'280);
  CHECK(block.backwardInput == 1'048'576 + 327'680 + 2'097'152 + 983'040);
  CHECK(block.backwardWeight == 1'597'440 + 3'031'040);
  const Layer &embedding = tiny.layers[0], &head = tiny.layers[2];
  CHECK(embedding.forward == 122'880);
  CHECK(embedding.backwardInput == 0);
  CHECK(embedding.backwardWeight == 409'600);
  CHECK(head.forward == 1'048'576 + 81'920 + 327'680);
  CHECK(head.backwardInput == 1'048'576 + 122'880 + 327'680);
  CHECK(head.backwardWeight == 1'515'520);
  // Without a bandwidth the operations alone count.
  Model free = build(kTiny, "", "flops: 1T");
  CHECK(free.layers[1].forward == 3'276'800);
  CHECK(free.layers[0].forward == 0);
  for (const CostRow &each : free.costs)
    CHECK(each.bound == CostBound::Flops);
}

TEST_CASE("costs: what selective recomputation makes again") {
  // Scores: 32 * 32 * 64 operations; queries and keys, and the matrix written,
  // read and written.
  const std::string stored = kTiny + ", flash_attention: false";
  Layer flops = build(stored, "", "flops: 1T").layers[1];
  CHECK(flops.recomputeSelective == 65'536);
  Layer bytes = build(stored, "", "flops: 1T, bandwidth: 100GB/s").layers[1];
  CHECK(bytes.recomputeSelective == (32 * 2 * 128 + 6 * 4096) * 10);
  CHECK(bytes.recomputeFull == bytes.forward);
}

TEST_CASE("costs: the rows of a layer add up to its times") {
  for (const std::string &fields :
       {kTiny, kMoe + ", mtp_layers: 1, shared_experts: 1, dense_layers: 1, "
                      "gated_ffn: true, ffn: 128"}) {
    std::string more = fields;
    if (fields != kTiny)
      more.replace(0, std::string("layers: 1").size(), "layers: 3");
    Model model =
        build(more, "tensor_parallel: 2, data_parallel: 2",
              "flops: 1T, bandwidth: 1TB/s}, group_link: {bandwidth: 1GB/s");
    for (const Layer &layer : model.layers)
      for (CostPass pass : kAllCostPasses) {
        Ticks sum = 0;
        uint32_t count = 0;
        for (const CostRow &row : model.costs)
          if (row.layer == layer.name && row.pass == pass) {
            sum += row.time;
            count = row.layers;
          }
        Ticks time = pass == F   ? layer.forward
                     : pass == I ? layer.backwardInput
                                 : layer.backwardWeight;
        CAPTURE(layer.name, kCostPasses[unsigned(pass)]);
        CHECK(std::abs(sum - time) <= 8); // a rounding each
        if (sum != 0)
          CHECK(count == llvm::count_if(model.layers, [&](const Layer &other) {
                  return other.name == layer.name;
                }));
      }
  }
}
