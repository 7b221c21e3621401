#include "compiler/spec/Parser.h"
#include "compiler/spec/RunSection.h"
#include "tests/Catch.h"

using namespace sluice;

namespace {

/// Parses what must be without fault.
Spec parsed(const std::string &text, const std::vector<Override> &set = {},
            const std::string &file = "spec.yaml") {
  Diagnostics diagnostics;
  std::optional<Spec> spec = parseSpec(text, file, set, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(spec);
  CHECK(diagnostics.all().empty());
  return *spec;
}

const std::string kSmall = "sluice: 1\n"
                           "model:\n"
                           "  layers:\n"
                           "    - {forward: 1, backward: 2}\n";

} // namespace

TEST_CASE("spec: every key reaches its member") {
  Spec spec = parsed(R"(sluice: 1
model:
  name: my-model
  parameter_bytes: 1
  gradient_bytes: 2
  optimizer_bytes: 3
  layers:
    - {name: a, repeat: 24, forward: 1ms, backward: 2.5ms}
    - name: b
      forward: 20us
      backward_input: 0
      backward_weight: 3ns
      params: 7
      activation_bytes: 1KiB
      kept_for_weight: 1kB
      output_bytes: 0.5MiB
      workspace_bytes: 2 GB
      checkpoint_bytes: 3MB
      recompute: 2ms
pipeline:
  ranks: 4
  virtual_stages: 2
  microbatches: 16
  microbatch_size: 3
  schedule: gpipe
  placement: loop
  layout: [1, 2, 3, 4, 5, 6, 2, 2]
  warmup: [3, 2, 1, 0]
  objective: span
  backward: split
  recompute: selective
  tensor_parallel: 1
  sequence_parallel: false
  context_parallel: 1
  expert_parallel: 1
  data_parallel: 1
  zero: 0
  memory_limit: 80GiB
cluster:
  device: {name: h100, memory: 64GiB, efficiency: 0.5}
  link: {latency: 5us, bandwidth: 50GB/s}
  node_link: {latency: 10us, bandwidth: 25GB/s}
  devices_per_node: 8
run: {module: gpt, data: file.txt, steps: 50, learning_rate: 3e-4, seed: 9}
)");
  CHECK(spec.file == "spec.yaml");
  CHECK(*spec.model.name == "my-model");
  CHECK(spec.model.parameterBytes == 1);
  CHECK(spec.model.gradientBytes == 2);
  CHECK(spec.model.optimizerBytes == 3);
  CHECK(spec.model.timeUnit == TimeUnit::Seconds);
  REQUIRE(spec.model.layers.size() == 2);
  const LayerSpec &a = spec.model.layers[0], &b = spec.model.layers[1];
  CHECK(*a.name == "a");
  CHECK(a.repeat == 24);
  CHECK(a.forward == 1'000'000'000);
  CHECK(a.backward == 2'500'000'000);
  CHECK_FALSE(a.backwardInput.given);
  CHECK(b.repeat == 1);
  CHECK(b.forward == 20'000'000);
  CHECK(b.backwardInput.given);
  CHECK(b.backwardInput == 0);
  CHECK(b.backwardWeight == 3'000);
  CHECK(b.parameters == 7);
  CHECK(b.activationBytes == 1024);
  CHECK(b.keptForWeight == 1000);
  CHECK(b.outputBytes == 524288);
  CHECK(b.workspaceBytes == 2'000'000'000);
  CHECK(b.checkpointBytes == 3'000'000);
  CHECK(b.recompute == 2'000'000'000);
  const PipelineSpec &pipeline = spec.pipeline;
  CHECK(pipeline.ranks == 4);
  CHECK(pipeline.virtualStages == 2);
  CHECK(pipeline.microbatches == 16);
  CHECK(pipeline.microbatchSize == 3);
  CHECK(*pipeline.schedule == "gpipe");
  CHECK(std::get<PlacementKind>(*pipeline.placement) == PlacementKind::Loop);
  CHECK(std::get<std::vector<uint32_t>>(*pipeline.layout) ==
        std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 2, 2});
  CHECK(std::get<std::vector<uint32_t>>(*pipeline.warmup) ==
        std::vector<uint32_t>{3, 2, 1, 0});
  CHECK(*pipeline.objective == Objective::Span);
  CHECK(*pipeline.backward == BackwardMode::Split);
  CHECK(std::get<RecomputePolicy>(*pipeline.recompute) ==
        RecomputePolicy::Selective);
  CHECK(pipeline.memoryLimit == 80ull << 30);
  REQUIRE(spec.cluster.device);
  CHECK(*spec.cluster.device->name == "h100");
  CHECK(spec.cluster.device->memory == 64ull << 30);
  CHECK_FALSE(spec.cluster.device->flops.given);
  CHECK(spec.cluster.device->efficiency == 0.5);
  CHECK(spec.cluster.link.latency == 5'000'000);
  CHECK(spec.cluster.link.bandwidth == 50'000'000'000);
  REQUIRE(spec.cluster.nodeLink);
  CHECK(spec.cluster.nodeLink->latency == 10'000'000);
  CHECK(spec.cluster.nodeLink->bandwidth == 25'000'000'000);
  CHECK(spec.cluster.devicesPerNode == 8);
  CHECK(*spec.run.module == "gpt");
  CHECK(*spec.run.data == "file.txt");
  CHECK(spec.run.steps == 50);
  CHECK(spec.run.learningRate == 3e-4);
  CHECK(spec.run.seed == 9);
}

TEST_CASE("spec: every key of a transformer reaches its member") {
  Spec spec = parsed(R"(sluice: 1
model:
  transformer:
    {layers: 32, hidden: 4096, ffn: 14336, gated_ffn: true, heads: 32,
     kv_heads: 8, vocab: 128256, sequence: 8192, positions: 9000,
     position: learned, norm: rms, bias: false, tied_embeddings: true,
     flash_attention: false, dropout: true, dtype: fp16}
cluster:
  device: {flops: 989T}
)");
  REQUIRE(spec.model.transformer);
  const TransformerSpec &shape = *spec.model.transformer;
  CHECK(shape.layers == 32);
  CHECK(shape.hidden == 4096);
  CHECK(shape.ffn == 14336);
  CHECK(shape.gatedFfn);
  CHECK(shape.heads == 32);
  CHECK(shape.kvHeads == 8);
  CHECK(shape.vocab == 128256);
  CHECK(shape.sequence == 8192);
  CHECK(shape.positions == 9000);
  CHECK(*shape.position == Positions::Learned);
  CHECK(*shape.norm == Norm::Rms);
  CHECK_FALSE(shape.bias);
  CHECK(shape.tiedEmbeddings);
  CHECK_FALSE(shape.flashAttention);
  CHECK(shape.dropout);
  CHECK(*shape.dtype == DataType::Fp16);
  CHECK(spec.cluster.device->flops == 989e12);
  CHECK(spec.model.timeUnit == TimeUnit::Seconds);
}

TEST_CASE("spec: defaults") {
  Spec spec = parsed(kSmall, {}, "some.folder/my.model.yaml");
  CHECK(*spec.model.name == "my.model");
  CHECK_FALSE(spec.model.name.given);
  CHECK(spec.model.timeUnit == TimeUnit::Unit);
  CHECK(spec.model.parameterBytes == 2);
  CHECK(spec.pipeline.ranks == 1);
  CHECK(spec.pipeline.microbatches == 1);
  CHECK(*spec.pipeline.schedule == "1f1b");
  CHECK_FALSE(spec.pipeline.placement.given);
  CHECK_FALSE(spec.pipeline.memoryLimit.given);
  CHECK(std::holds_alternative<LayoutAuto>(*spec.pipeline.layout));
  CHECK(std::holds_alternative<WarmupStandard>(*spec.pipeline.warmup));
  CHECK_FALSE(spec.cluster.device);
  CHECK_FALSE(spec.cluster.nodeLink);

  Spec transformer = parsed("sluice: 1\nmodel:\n  transformer: {layers: 2, "
                            "hidden: 64, heads: 4, vocab: 9, sequence: 32}\n",
                            {}, "-");
  CHECK(*transformer.model.name == "stdin");
  const TransformerSpec &shape = *transformer.model.transformer;
  CHECK(shape.ffn == 256);
  CHECK(shape.kvHeads == 4);
  CHECK(shape.positions == 32);
  CHECK_FALSE(shape.gatedFfn);
  CHECK(shape.bias);
  CHECK(shape.flashAttention);
  CHECK_FALSE(shape.dropout);
  CHECK(*shape.norm == Norm::Layer);
  CHECK(*shape.position == Positions::Learned);
  CHECK(*shape.dtype == DataType::Bf16);
}

TEST_CASE("spec: values know their places") {
  Spec spec = parsed(kSmall + "pipeline:\n  ranks: 1\n  layout:\n    - 1\n");
  CHECK(spec.model.where == SourceLocation{0, 2, 1});
  CHECK(spec.model.layers[0].where == SourceLocation{0, 4, 7});
  CHECK(spec.model.layers[0].forward.where == SourceLocation{0, 4, 17});
  CHECK(spec.pipeline.ranks.where == SourceLocation{0, 6, 10});
  CHECK(spec.pipeline.layout.where == SourceLocation{0, 8, 5});
  CHECK_FALSE(spec.pipeline.microbatches.given);
}

TEST_CASE("spec: layouts") {
  auto layoutOf = [](const std::string &layout) {
    return *parsed(kSmall + "pipeline: {layout: " + layout + "}\n")
                .pipeline.layout;
  };
  CHECK(std::holds_alternative<LayoutAuto>(layoutOf("auto")));
  CHECK(std::holds_alternative<LayoutEven>(layoutOf("even")));
  Layout ends = layoutOf("{last: 3, first: 2}");
  CHECK(std::get<LayoutEnds>(ends).first == 2);
  CHECK(std::get<LayoutEnds>(ends).last == 3);
}

TEST_CASE("spec: overrides replace and add, the last one wins") {
  std::string text = kSmall + "pipeline:\n  ranks: wrong\n";
  Spec spec = parsed(text, {{"pipeline.ranks", "2"},
                            {"pipeline.ranks", "3"},
                            {"pipeline.layout", "[1, 0, 0]"},
                            {"run.steps", "5"},
                            {"cluster.link", "{latency: 4}"},
                            {"model.layers.0.forward", "7"}});
  CHECK(spec.pipeline.ranks == 3);
  CHECK(spec.pipeline.ranks.where == SourceLocation{2, 1, 16});
  CHECK(std::get<std::vector<uint32_t>>(*spec.pipeline.layout).size() == 3);
  CHECK(spec.run.steps == 5);
  CHECK(spec.cluster.link.latency == 4'000'000);
  CHECK(spec.model.layers[0].forward == 7'000'000);
}

TEST_CASE("spec: anchors, byte order mark and line ends are taken") {
  Spec spec = parsed("\xef\xbb\xbfsluice: 1\r\n"
                     "model:\r\n"
                     "  layers:\r\n"
                     "    - &one {forward: 1, backward: 2}\r\n"
                     "    - *one\r\n");
  REQUIRE(spec.model.layers.size() == 2);
  CHECK(spec.model.layers[1].backward == 2'000'000);
  CHECK(spec.model.layers[1].where == SourceLocation{0, 5, 7});
}

TEST_CASE("spec: a zero fits both kinds of time") {
  Spec spec = parsed("sluice: 1\nmodel:\n  layers:\n    - {forward: 1ms, "
                     "backward: 0}\ncluster:\n  link: {latency: 0}\n");
  CHECK(spec.model.timeUnit == TimeUnit::Seconds);
}

TEST_CASE("spec: a text past the limit is refused") {
  Diagnostics diagnostics;
  std::string text = kSmall + std::string(2 << 20, '#');
  CHECK_FALSE(parseSpec(text, "big.yaml", {}, diagnostics));
  CHECK(diagnostics.render() ==
        "big.yaml: error: the spec has 2097211 bytes, more than the limit of "
        "1048576\n");
}

TEST_CASE("spec: a zero may carry a unit") {
  Spec spec = parsed(kSmall + "cluster: {link: {latency: 0}}\n");
  CHECK(spec.cluster.link.latency == 0);
  spec = parsed("sluice: 1\nmodel:\n  layers:\n"
                "    - {forward: 1ms, backward: 0us}\n"
                "cluster: {link: {latency: 0.0ns}}\n");
  CHECK(spec.model.layers[0].backward == 0);
  CHECK(spec.model.timeUnit == TimeUnit::Seconds);
}

TEST_CASE("spec: overrides of a plan follow the rules of a spec") {
  Diagnostics diagnostics;
  std::optional<RunSpec> run = parseRunOverrides(
      {{"run.steps", "7"}, {"run.data", "a.txt"}}, diagnostics);
  REQUIRE(run);
  CHECK(run->steps == 7);
  using Entry = std::pair<std::string, std::string>;
  CHECK(runEntries(*run) == std::vector<Entry>{{"data", "a.txt"},
                                               {"learning_rate", "0.001"},
                                               {"seed", "1"},
                                               {"steps", "7"}});
  CHECK_FALSE(parseRunOverrides(
      {{"run.steps", "0"}, {"run.learning_rate", "-1"}, {"run.seed", ""}},
      diagnostics));
  CHECK(diagnostics.render() ==
        R"(--set:1:11: error: run.steps is 0, must be from 1 to 1000000000
  run.steps=0
            ^
--set:1:19: error: run.learning_rate is -1, must be a number over 0, up to 1000
  run.learning_rate=-1
                    ^
--set:1:1: error: run.seed is empty, must be a whole number from 0 to 2305843009213693952
  run.seed=
  ^
)");
}

namespace {
/// Warnings of keys without effect, one a line.
std::string idleKeys(const std::string &text, std::string_view module = {}) {
  Spec spec = parsed(text);
  Diagnostics diagnostics;
  warnOfIdleKeys(spec, module, {"gpt", "synthetic"}, diagnostics);
  std::string out;
  for (const Diagnostic &warning : diagnostics.all())
    out += warning.message + "\n";
  return out;
}
} // namespace

TEST_CASE("spec: keys without effect are told alike") {
  const std::string keys = "run: {data: a.txt, seed: 2, learning_rate: 0.1}\n";
  const std::string untrained =
      "run.data has no effect with module synthetic, which trains nothing\n"
      "run.learning_rate has no effect with module synthetic, which trains "
      "nothing\n"
      "run.seed has no effect with module synthetic, which trains nothing\n";
  CHECK(idleKeys(kSmall + keys) == untrained);
  CHECK(idleKeys(kSmall + keys, "gpt").empty());
  CHECK(idleKeys(kSmall + "run: {module: ./mine.so, data: a.txt}\n").empty());
  const std::string transformer =
      "sluice: 1\nmodel:\n  transformer: {layers: 2, hidden: 8, heads: 2, "
      "vocab: 256, sequence: 8}\npipeline: {microbatch_size: 2}\n";
  CHECK(idleKeys(transformer + keys).empty());
  CHECK(idleKeys(transformer + keys, "synthetic") == untrained);

  CHECK(idleKeys(kSmall + "pipeline: {microbatch_size: 2}\n"
                          "cluster:\n"
                          "  device: {memory: 1GiB, efficiency: 0.5}\n"
                          "  devices_per_node: 8\n"
                          "run: {module: gtp}\n") ==
        "pipeline.microbatch_size has no effect on explicit layers, whose "
        "times and sizes are per microbatch\n"
        "cluster.device.efficiency has no effect without "
        "cluster.device.flops\n"
        "cluster.devices_per_node has no effect without cluster.node_link\n"
        "run.module is gtp, which is neither one of gpt, synthetic nor a "
        "shared library, whose path ends in .so\n");
}
