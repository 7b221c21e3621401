//===- tests/compiler/ModelMemory.cpp - Bytes on one device of a group ----===//
#include "compiler/model/Layer.h"
#include "compiler/model/Parallel.h"
#include "compiler/partition/Partition.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <cmath>

using namespace sluice;

namespace {

struct Built {
  std::optional<Spec> spec;
  std::optional<Model> model;
  std::string messages;
};

Built build(const std::string &fields, const std::string &pipeline,
            const std::string &rest = "") {
  Diagnostics diagnostics;
  Built built;
  built.spec = parseSpec("sluice: 1\nmodel:\n  transformer: {" + fields +
                             "}\npipeline: {" + pipeline + "}\n" + rest,
                         "spec.yaml", {}, diagnostics);
  if (built.spec)
    built.model = buildModel(*built.spec, diagnostics);
  built.messages = diagnostics.render();
  return built;
}

Model model(const std::string &fields, const std::string &pipeline,
            const std::string &rest = "") {
  Built built = build(fields, pipeline, rest);
  INFO(built.messages);
  REQUIRE(built.model);
  return *built.model;
}

Stage onlyStage(const std::string &fields, const std::string &pipeline) {
  Built built = build(fields, pipeline);
  INFO(built.messages);
  REQUIRE(built.model);
  Diagnostics diagnostics;
  std::optional<StageGraph> graph =
      partition(*built.spec, *built.model, 1, diagnostics);
  REQUIRE(graph);
  return graph->stages[0];
}

double gib(double bytes) { return bytes / double(1 << 30); }

/// h 64, 4 heads, f 256, s 32.
const std::string kTiny =
    "layers: 1, hidden: 64, heads: 4, vocab: 256, sequence: 32";
const std::string kMoe = kTiny + ", experts: 8, topk: 2, moe_ffn: 32";

} // namespace

// Korthikanti et al., arXiv 2205.05198: table 2 by its formulas, for the four
// models of the paper; the first stage holds L (1 + (p-1)/(pv)) layers.
TEST_CASE("memory: activations of the published models to every digit") {
  struct Row {
    double layers, hidden, heads, p, v, b;
    double none, selective;
  };
  const Row rows[] = {
      {48, 6144, 64, 1, 1, 4, 59.25, 9.5625},
      {96, 12288, 96, 8, 3, 1, 66.84375, 12.3515625},
      {105, 20480, 128, 35, 3, 1, 114.0234375, 23.076171875},
      {128, 25600, 160, 64, 1, 1, 131.25, 26.5625},
  };
  auto text = [](double value) { return std::to_string(int(value)); };
  for (const Row &row : rows) {
    std::string fields = "layers: " + text(row.layers) +
                         ", hidden: " + text(row.hidden) +
                         ", heads: " + text(row.heads) +
                         ", vocab: 51200, sequence: 2048, dropout: true, "
                         "flash_attention: false";
    std::string group = "tensor_parallel: 8, microbatch_size: " + text(row.b);
    double held = row.v == 1 ? row.layers
                             : row.layers * (1 + (row.p - 1) / (row.p * row.v));
    Layer plain = model(fields, group).layers[1];
    CHECK(gib(held * double(plain.activation)) == row.none);
    Layer divided =
        model(fields, group + ", sequence_parallel: true").layers[1];
    CHECK(gib(held * double(divided.activation - divided.remade)) ==
          row.selective);
  }
}

// The six formulas of table 2: t = 4, s = 32, b = 2, h = 64, a = 4, so
// sbh = 4096 and 5as/h = 10.
TEST_CASE("memory: activations of a block under each kind of parallelism") {
  const std::string fields = kTiny + ", dropout: true, flash_attention: false";
  const std::string b = "microbatch_size: 2, ";
  const Bytes sbh = 4096;
  Layer none = model(fields, b + "tensor_parallel: 1").layers[1];
  CHECK(none.activation == sbh * (34 + 10));
  Layer tensor = model(fields, b + "tensor_parallel: 4").layers[1];
  CHECK(tensor.activation == sbh * 10 + sbh * 24 / 4 + sbh * 10 / 4);
  CHECK(tensor.activation - tensor.remade == sbh * 10 + sbh * 24 / 4);
  CHECK(tensor.output == 2 * sbh);
  Layer sequence =
      model(fields, b + "tensor_parallel: 4, sequence_parallel: true")
          .layers[1];
  CHECK(sequence.activation == sbh * (34 + 10) / 4);
  CHECK(sequence.activation - sequence.remade == sbh * 34 / 4);
  CHECK(sequence.output == 2 * sbh / 4);
  CHECK(none.checkpoint == 2 * sbh); // full recomputation
  // A device of two of the context group has half of the tokens.
  Layer context =
      model(fields, b + "tensor_parallel: 4, context_parallel: 2").layers[1];
  CHECK(context.activation == tensor.activation / 2);
  CHECK(context.output == sbh);
}

TEST_CASE("memory: recomputation by stage") {
  const std::string fields = kTiny + ", dropout: true, flash_attention: false";
  Stage none = onlyStage(fields, "recompute: none");
  Stage selective = onlyStage(fields, "recompute: [selective]");
  Stage full = onlyStage(fields, "recompute: full");
  Stage flash = onlyStage(kTiny, "recompute: selective");
  // sbh = 2048; the head keeps norm input, norm output and 256 scores a token.
  const Bytes sbh = 2048, head = 32 * 2 * (2 * 64 + 256);
  for (const Stage &stage : {none, selective, full})
    CHECK(stage.bytes.activation == sbh * 44 + head);
  const Bytes normInput = 32 * 2 * 64;
  CHECK(none.bytes.keptForWeight == sbh * 32 + head - normInput);
  CHECK(selective.bytes.keptForWeight == sbh * 34 + head);
  CHECK(full.bytes.keptForWeight == none.bytes.keptForWeight);
  // A forward that leaves no more works in the workspace: on 32sbh and the
  // matrix of one head, 32 x 32 numbers. A backward has 4h + 2f = 768 numbers a
  // token there, and two such matrices.
  CHECK(none.bytes.workspace == 2 * (32 * 768 + 2 * 1024));
  CHECK(selective.bytes.workspace == none.bytes.workspace);
  CHECK(full.bytes.workspace == sbh * 32 + 2 * 1024);
  // A block's forward is 32 (2 * 49152 + 2 * 32 * 64) = 3,276,800 operations;
  // of these the attention matrix is 65,536 and its product as many. The head's
  // is 2 * 64 * 256 * 32 = 1,048,576.
  CHECK(none.recompute == 0);
  CHECK(selective.recompute == 20'000);
  CHECK(full.recompute == 1'320'000);
  for (const Stage &stage : {none, selective, full})
    CHECK(stage.backwardInput == none.backwardInput);
  CHECK(selective.recomputePolicy == RecomputePolicy::Selective);
  CHECK(flash.recomputePolicy == RecomputePolicy::None);
}

// A stage's checkpoint is its own input, 2sbh, divided as what it saves is.
TEST_CASE("memory: a checkpoint is a stage's input") {
  auto checkpoints = [](const std::string &layout,
                        const std::string &pipeline) {
    Built built =
        build("layers: 4, hidden: 64, heads: 4, vocab: 256, sequence: 32",
              "recompute: full, layout: " + layout + pipeline);
    INFO(built.messages);
    REQUIRE(built.model);
    Diagnostics diagnostics;
    std::optional<StageGraph> graph =
        partition(*built.spec, *built.model, 4, diagnostics);
    REQUIRE(graph);
    std::vector<Bytes> bytes;
    for (const Stage &stage : graph->stages)
      bytes.push_back(stage.bytes.checkpoint);
    return bytes;
  };
  const Bytes sbh = 2048;
  using Sizes = std::vector<Bytes>;
  CHECK(checkpoints("[1, 2, 1, 0]", ", ranks: 4") ==
        Sizes{0, 2 * sbh, 2 * sbh, 2 * sbh});
  CHECK(checkpoints("[1, 2, 1, 0]", ", ranks: 4, tensor_parallel: 4") ==
        Sizes{0, 2 * sbh, 2 * sbh, 2 * sbh});
  CHECK(
      checkpoints("[1, 2, 1, 0]",
                  ", ranks: 4, tensor_parallel: 4, sequence_parallel: true") ==
      Sizes{0, sbh / 2, sbh / 2, sbh / 2});
  // An empty stage only passes on.
  CHECK(checkpoints("\"Et|tt||tL\"", ", ranks: 4") ==
        Sizes{0, 2 * sbh, 0, 2 * sbh});
}

// Megatron-LM, distributed optimizer: bytes per parameter without and with d
// copies to divide among.
TEST_CASE("memory: training state by number format and level of ZeRO") {
  auto bytes = [](const std::string &dtype, const std::string &pipeline) {
    StateBytes state =
        model(kTiny + ", dtype: " + dtype, pipeline).stateOf({64'000, 0});
    return std::array<Bytes, 3>{state.parameters, state.gradients,
                                state.optimizer};
  };
  using Each = std::array<Bytes, 3>;
  const std::string d = "data_parallel: 8, zero: ";
  const Bytes n = 64'000;
  CHECK(bytes("fp16", d + "0") == Each{2 * n, 2 * n, 16 * n});     // 20
  CHECK(bytes("fp16", d + "1") == Each{2 * n, 2 * n, 16 * n / 8}); // 4 + 16/d
  CHECK(bytes("bf16", d + "0") == Each{2 * n, 4 * n, 12 * n});     // 18
  CHECK(bytes("bf16", d + "1") == Each{2 * n, 4 * n, 12 * n / 8}); // 6 + 12/d
  CHECK(bytes("fp32", d + "0") == Each{4 * n, 4 * n, 8 * n});      // 16
  CHECK(bytes("fp32", d + "1") == Each{4 * n, 4 * n, 8 * n / 8});  // 8 + 8/d
  // What is kept and what is computed are buffers of the plan; without them
  // level 2 divides the gradients here.
  CHECK(bytes("bf16", d + "2") == Each{2 * n, 4 * n, 12 * n / 8});
  CHECK(bytes("bf16", "data_parallel: 4, context_parallel: 2, zero: 2") ==
        Each{2 * n, 4 * n / 8, 12 * n / 8});
  CHECK(bytes("bf16", d + "3") == Each{2 * n / 8, 4 * n / 8, 12 * n / 8});
  // The context group holds the same parameters too.
  CHECK(bytes("bf16", "data_parallel: 4, context_parallel: 2, zero: 1") ==
        Each{2 * n, 4 * n, 12 * n / 8});
  CHECK(bytes("bf16", "zero: 3") == Each{2 * n, 4 * n, 12 * n});
  // Parts are rounded up.
  Model odd = model(kTiny, "data_parallel: 7, zero: 1");
  CHECK(odd.stateOf({10, 0}).optimizer == 18); // 120 / 7
}

// Experts are copied d / e times, everything else d times.
TEST_CASE("memory: experts divide by their own group") {
  Model moe = model(kMoe, "data_parallel: 4, expert_parallel: 2, zero: 1");
  StateBytes state = moe.stateOf({1000, 100});
  CHECK(state.parameters == 2 * 1100);
  CHECK(state.optimizer == 12 * 1000 / 4 + 12 * 100 / 2);
  // Half of 8 experts of 2 * 64 * 32 numbers and biases 32 + 64.
  const Layer &block = moe.layers[1];
  CHECK(block.held.experts == 4 * (2 * 64 * 32 + 96));
  CHECK(block.held.dense + 2 * block.held.experts == block.parameters);
}

// h 64, f 256: matrices are divided, norms and the biases of what is summed
// are not.
TEST_CASE("memory: parameters that one device of a tensor group holds") {
  Model whole = model(kTiny, "tensor_parallel: 1");
  CHECK(whole.layers[1].held.dense == whole.layers[1].parameters);
  Model four = model(kTiny, "tensor_parallel: 4");
  const Layer &block = four.layers[1];
  CHECK(block.parameters == whole.layers[1].parameters);
  CHECK(block.held.dense ==
        12 * 64 * 64 / 4 + (3 * 64 + 256) / 4 + 2 * 64 + 4 * 64);
  // 256 rows of the table by 4; all 32 positions.
  CHECK(four.layers[0].held.dense == 64 * 64 + 32 * 64);
  CHECK(four.layers[2].held.dense == 64 * 64 + 2 * 64);
  // A vocabulary that does not divide leaves the largest part: 65 rows.
  Model odd = model("layers: 1, hidden: 64, heads: 4, vocab: 257, sequence: 32",
                    "tensor_parallel: 4");
  CHECK(odd.layers[0].held.dense == 65 * 64 + 32 * 64);
  // Two heads of keys and values on four devices: each has one.
  Model shared =
      model(kTiny + ", kv_heads: 2, bias: false", "tensor_parallel: 4");
  CHECK(shared.layers[1].held.dense ==
        2 * 64 * 64 / 4 + 2 * 64 * 16 + 8 * 64 * 64 / 4 + 4 * 64);
}

TEST_CASE("memory: a tied table is divided among the tensor group") {
  Model four = model(kTiny + ", tied_embeddings: true", "tensor_parallel: 4");
  CHECK(four.tiedTable == 64 * 64);
  CHECK(model(kTiny, "tensor_parallel: 4").tiedTable == 0);
}

// Megatron-LM gives each stage with such a layer an embedding and a head; h 64
// and 256 words make tables of 16384 numbers.
TEST_CASE("memory: multi-token prediction has copies of embedding and head") {
  const uint64_t table = 64 * 256;
  auto stages = [](const std::string &fields, const std::string &layout,
                   uint32_t count) {
    Built built =
        build(kTiny + ", mtp_layers: 1" + fields, "layout: '" + layout + "'");
    INFO(built.messages);
    REQUIRE(built.model);
    Diagnostics diagnostics;
    std::optional<StageGraph> graph =
        partition(*built.spec, *built.model, count, diagnostics);
    INFO(diagnostics.render());
    REQUIRE(graph);
    return std::pair(graph->stages, built.model->layers);
  };
  // Layers: embedding, block, mtp, head.
  auto check = [&](const Stage &stage, uint64_t numbers) {
    CHECK(stage.bytes.parameters == 2 * numbers);
    CHECK(stage.bytes.gradients == 4 * numbers);
    CHECK(stage.bytes.optimizer == 12 * numbers);
  };
  auto [alone, layers] = stages("", "Et|m|L", 3);
  check(alone[0], layers[0].held.dense + layers[1].held.dense);
  check(alone[1], layers[2].held.dense + 2 * table);
  check(alone[2], layers[3].held.dense);
  auto withHead = stages("", "Et|mL", 2).first;
  check(withHead[1], layers[2].held.dense + layers[3].held.dense + table);
  auto whole = stages("", "EtmL", 1).first;
  check(whole[0], layers[0].held.dense + layers[1].held.dense +
                      layers[2].held.dense + layers[3].held.dense);
  // Tied, both are one table.
  auto [tied, tiedLayers] = stages(", tied_embeddings: true", "Et|m|L", 3);
  check(tied[1], tiedLayers[2].held.dense + table);
  auto tiedHead = stages(", tied_embeddings: true", "Et|mL", 2).first;
  check(tiedHead[1],
        tiedLayers[2].held.dense + tiedLayers[3].held.dense + table);
}

// Level 2, where the plan does not hold the parts, has the gradients of a
// running layer whole, level 3 its parameters too.
TEST_CASE("memory: what ZeRO gathers lies in the workspace") {
  const std::string d = "data_parallel: 8, zero: ";
  Layer one = model(kTiny, d + "1").layers[1];
  Layer planned = model(kTiny, d + "2").layers[1];
  Layer two =
      model(kTiny, "data_parallel: 4, context_parallel: 2, zero: 2").layers[1];
  Layer divided =
      model(kTiny, "data_parallel: 4, context_parallel: 2, zero: 1").layers[1];
  Layer three = model(kTiny, d + "3").layers[1];
  CHECK(planned.workspace == one.workspace);
  CHECK(two.workspace == divided.workspace + 4 * one.parameters);
  CHECK(three.workspace == one.workspace + 6 * one.parameters);
}

TEST_CASE("memory: saved bytes of a block with experts") {
  // Per token: 4h + 4h of attention; scores of 8 experts, for each of two
  // experts input and output of h and 2 * 32 within.
  Layer moe = model(kMoe, "tensor_parallel: 1").layers[1];
  CHECK(moe.activation == 32 * 2 * (8 * 64 + 8 + 2 * 2 * 64 + 2 * 2 * 32));
  Layer divided = model(kMoe, "tensor_parallel: 4").layers[1];
  CHECK(divided.activation ==
        32 * 2 * (4 * 64 + 4 * 16 + 8 + 2 * 2 * 64 + 2 * 2 * 8));
}

// Times are those of one device.
TEST_CASE("cost: groups divide the operations and pay for their messages") {
  const std::string device = "cluster: {device: {flops: 1T}}\n";
  Layer one = model(kTiny, "tensor_parallel: 1", device).layers[1];
  Layer four =
      model(kTiny, "tensor_parallel: 2, context_parallel: 2", device).layers[1];
  CHECK(one.forward == 3'276'800);
  CHECK(four.forward == 3'276'800 / 4);
  CHECK(four.backwardWeight == one.backwardWeight / 4);
  // Two all-reduces of 32 tokens by 64 numbers of 2 bytes: with t = 4 each
  // moves 2 * 3/4 of 4096 bytes in 6 steps.
  Layer linked =
      model(kTiny, "tensor_parallel: 4",
            "cluster: {device: {flops: 1T}, group_link: {latency: 1us, "
            "bandwidth: 1GB/s}}\n")
          .layers[1];
  const Ticks us = 1'000'000;
  CHECK(linked.forward == one.forward / 4 + 2 * 6 * us + 2 * 6144 * 1000);
  CHECK(linked.backwardInput ==
        one.backwardInput / 4 + 2 * 6 * us + 2 * 6144 * 1000);
  CHECK(linked.backwardWeight == one.backwardWeight / 4);
}

TEST_CASE("parallel: ranks that share a node") {
  auto ranks = [](const std::string &pipeline, int node) {
    Built built = build(kTiny, pipeline,
                        "cluster: {devices_per_node: " + std::to_string(node) +
                            ", node_link: {latency: 1}}\n");
    INFO(built.messages);
    REQUIRE(built.spec);
    REQUIRE(built.model);
    return ranksPerNode(*built.spec);
  };
  CHECK(ranks("tensor_parallel: 1", 8) == 8);
  CHECK(ranks("tensor_parallel: 4", 8) == 2);
  CHECK(ranks("tensor_parallel: 4, context_parallel: 2", 8) == 1);
  CHECK(ranks("tensor_parallel: 4, context_parallel: 4", 8) == 1);
  CHECK(ranksPerNode(*build(kTiny, "tensor_parallel: 4").spec) == 0);
}

TEST_CASE("parallel: groups that do not divide are refused with the numbers") {
  auto refused = [](const std::string &fields, const std::string &pipeline,
                    const std::string &message, const std::string &rest = "") {
    Built built = build(fields, pipeline, rest);
    INFO(built.messages);
    CHECK_FALSE(built.model);
    CHECK(built.messages.find("error: " + message + "\n") != std::string::npos);
  };
  refused(kTiny, "tensor_parallel: 3",
          "pipeline.tensor_parallel is 3, which does not divide heads (4)");
  refused(kTiny, "tensor_parallel: 3",
          "pipeline.tensor_parallel is 3, which does not divide ffn (256)");
  refused(kMoe, "tensor_parallel: 64",
          "pipeline.tensor_parallel is 64, which does not divide moe_ffn (32)");
  refused(kTiny + ", kv_heads: 1, ffn: 258", "tensor_parallel: 4",
          "pipeline.tensor_parallel is 4, which does not divide ffn (258)");
  refused("layers: 1, hidden: 60, heads: 12, kv_heads: 6, vocab: 9, sequence: "
          "32, ffn: 16",
          "tensor_parallel: 4",
          "pipeline.tensor_parallel is 4, neither a divisor nor a multiple of "
          "the 6 kv_heads");
  refused(
      kTiny, "context_parallel: 5",
      "pipeline.context_parallel is 5, which does not divide sequence (32)");
  refused(kTiny,
          "tensor_parallel: 4, context_parallel: 16, "
          "sequence_parallel: true",
          "pipeline.sequence_parallel needs tensor_parallel to divide the "
          "sequence of a device, but 4 does not divide 2");
  refused(kTiny, "expert_parallel: 2, data_parallel: 2",
          "pipeline.expert_parallel is 2, but the model has no experts");
  refused(kMoe, "expert_parallel: 3, data_parallel: 3",
          "pipeline.expert_parallel is 3, which does not divide experts (8)");
  refused(
      kMoe, "expert_parallel: 2, data_parallel: 3",
      "pipeline.expert_parallel is 2, which does not divide data_parallel x "
      "context_parallel (3)");
  refused(kTiny, "tensor_parallel: 4",
          "cluster.devices_per_node is 6, neither a multiple nor a divisor of "
          "the 4 devices of a rank (tensor_parallel x context_parallel)",
          "cluster: {devices_per_node: 6, node_link: {latency: 1}}\n");
  refused(kTiny, "tensor_parallel: 65536, data_parallel: 65536",
          "tensor_parallel, context_parallel and data_parallel make more than "
          "the limit of 16777216 devices for each rank");
}

TEST_CASE("parallel: keys without effect are warned of") {
  auto warned = [](const std::string &pipeline, const std::string &message) {
    Built built = build(kTiny, pipeline);
    INFO(built.messages);
    CHECK(built.model);
    CHECK(built.messages.find("warning: " + message) != std::string::npos);
  };
  warned("sequence_parallel: true", "pipeline.sequence_parallel has no effect "
                                    "without tensor_parallel\n");
  warned("zero: 2", "pipeline.zero has no effect without data_parallel or "
                    "context_parallel\n");
  warned("data_parallel: 2, zero: 3",
         "the exchange of gradients among 2 data_parallel copies is not in the "
         "plan yet with zero 3");
  warned("data_parallel: 2, context_parallel: 2, zero: 1",
         "the exchange of gradients among 2 data_parallel copies is not in the "
         "plan yet with zero 1 and context_parallel 2");
}
