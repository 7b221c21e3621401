//===- tests/compiler/GptBytes.cpp - The model's bytes are the module's --===//
//
// The compiler and the module `gpt` know nothing of each other; here their
// byte counts are compared.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"
#include "runtime/modules/gpt/Module.h"

#include "tests/Catch.h"
#include "tests/Repository.h"

#include <string>

using namespace sluice;

namespace {
struct Shape {
  unsigned layers, hidden, ffn, heads, vocab, sequence, microbatchSize, ranks;
  bool tied = false;
  std::string schedule = "1f1b";
  std::string recompute = "none";
  bool flash = true;
  std::string run = {};      ///< keys of the section
  std::string pipeline = {}; ///< more keys of that
};

std::optional<Plan> compileShape(const Shape &shape) {
  auto text = [](unsigned number) { return std::to_string(number); };
  std::string spec =
      "sluice: 1\nmodel:\n  transformer: {layers: " + text(shape.layers) +
      ", hidden: " + text(shape.hidden) + ", ffn: " + text(shape.ffn) +
      ", heads: " + text(shape.heads) + ", vocab: " + text(shape.vocab) +
      ", sequence: " + text(shape.sequence) +
      ", tied_embeddings: " + (shape.tied ? "true" : "false") +
      ", flash_attention: " + (shape.flash ? "true" : "false") +
      ", dtype: fp32}\npipeline: " + "{ranks: " + text(shape.ranks) +
      ", microbatches: 2, microbatch_size: " + text(shape.microbatchSize) +
      ", schedule: " + shape.schedule + ", recompute: " + shape.recompute +
      shape.pipeline + "}\nrun: {" + shape.run + "}\n";
  Diagnostics diagnostics;
  Compilation compilation(diagnostics);
  compilation.spec = parseSpec(spec, "job.yaml", {}, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(compilation.spec.has_value());
  REQUIRE(runPipeline(fullPipeline(), compilation));
  return compilation.plan;
}
} // namespace

TEST_CASE("gpt: the compiler's bytes are what the module needs") {
  const sluice_module *module = sluice_gpt_module();
  const std::string more = "gradient_groups: 2, clip_norm: 0.5";
  const std::string zero = ", data_parallel: 7, zero: 1";
  for (const Shape &shape :
       {Shape{4, 16, 64, 2, 256, 8, 1, 1}, Shape{4, 16, 64, 2, 256, 8, 1, 4},
        Shape{5, 24, 40, 3, 256, 17, 2, 3}, Shape{2, 8, 256, 1, 300, 5, 3, 2},
        Shape{3, 32, 16, 4, 256, 64, 1, 1}, Shape{6, 8, 8, 2, 256, 3, 1, 5},
        Shape{4, 16, 64, 2, 256, 8, 1, 1, true},
        Shape{4, 16, 64, 2, 256, 8, 1, 2, true},
        Shape{6, 8, 8, 2, 256, 3, 1, 5, true},
        Shape{5, 24, 40, 3, 256, 17, 2, 3, false, "forward-only"},
        Shape{4, 16, 64, 2, 256, 8, 1, 2, true, "forward-only"},
        Shape{4, 16, 64, 2, 256, 8, 1, 4, false, "1f1b", "full"},
        Shape{5, 24, 40, 3, 256, 17, 2, 3, true, "1f1b", "full"},
        Shape{2, 8, 9, 1, 300, 50, 3, 1, false, "1f1b", "full"},
        Shape{5, 24, 40, 3, 256, 17, 2, 3, false, "1f1b", "none", false},
        Shape{5, 24, 40, 3, 256, 17, 2, 3, false, "1f1b", "full", false},
        Shape{5, 24, 40, 3, 256, 17, 2, 3, false, "1f1b", "selective", false},
        Shape{4, 16, 64, 2, 256, 8, 1, 2, true, "1f1b", "selective"},

        Shape{5, 24, 40, 3, 256, 17, 2, 3, false, "1f1b", "none", true, more},
        Shape{4, 16, 64, 2, 256, 8, 1, 1, true, "1f1b", "none", true, more},
        Shape{4, 16, 64, 2, 256, 8, 1, 2, true, "1f1b", "none", true, more},
        // Parts of equal size, of counts that have none.
        Shape{4, 16, 64, 2, 256, 8, 1, 2, false, "1f1b", "none", true, "",
              zero},
        Shape{3, 9, 11, 3, 257, 7, 1, 1, false, "1f1b", "none", true, "", zero},
        Shape{3, 9, 11, 3, 257, 7, 1, 3, false, "1f1b", "none", true, "", zero},
        Shape{3, 9, 11, 3, 257, 7, 1, 1, true, "1f1b", "none", true, "", zero},
        Shape{3, 9, 11, 3, 257, 7, 1, 3, true, "1f1b", "none", true, "", zero},
        Shape{3, 9, 11, 3, 257, 7, 1, 3, false, "1f1b", "none", true,
              "clip_norm: 0.5", zero}}) {
    std::optional<Plan> plan = compileShape(shape);
    std::string run = "data=" + tests::inRepository("LICENSE") + "\n";
    for (const auto &[key, value] : plan->run)
      run += key + "=" + value + "\n";
    for (Id id = 0; id < plan->stages.size(); ++id) {
      const Stage &stage = plan->stages[id];
      INFO(stage.description);
      sluice_stage info{};
      info.optimizer_parts = stage.optimizerParts;
      info.gradient_parts = stage.gradientParts;
      info.stage = id;
      info.stages = static_cast<uint32_t>(plan->stages.size());
      info.microbatches = plan->microbatches;
      info.trained = stage.backward;
      info.recompute = static_cast<uint32_t>(stage.recomputePolicy);
      info.tied_stage = stage.tiedTo;
      info.tied_bytes = stage.bytes.tied;
      info.description = stage.description.c_str();
      info.run = run.c_str();
      Id before = id - 1, after = id + 1; // a chain
      info.input_stages = &before;
      info.input_count = id > 0;
      info.output_stages = &after;
      info.output_count = after < plan->stages.size();
      sluice_error error{};
      void *instance = nullptr;
      int code = module->create(&info, &instance, &error);
      INFO(error.message);
      REQUIRE(code == 0);
      sluice_bytes need{};
      REQUIRE(module->bytes(instance, &need, &error) == 0);
      CHECK(need.parameters == stage.bytes.parameters);
      CHECK(need.gradients == stage.bytes.gradients);
      CHECK(need.optimizer == stage.bytes.optimizer);
      CHECK(need.norms == stage.bytes.norms);
      // Without flash attention the model counts the attention matrix before
      // dropout too, which the module, without dropout, does not save.
      Bytes matrices = shape.flash ? 0
                                   : Bytes(stage.layers) * 4 * shape.heads *
                                         shape.sequence * shape.sequence *
                                         shape.microbatchSize;
      if (!stage.backward)
        matrices = 0;
      CHECK(need.saved + matrices ==
            stage.bytes.activation - stage.bytes.keptForWeight);
      CHECK(need.kept == stage.bytes.keptForWeight);
      CHECK(need.checkpoint == stage.bytes.checkpoint);
      CHECK(need.workspace <= stage.bytes.workspace);
      if (id > 0)
        CHECK(need.input == plan->edges[id - 1].bytes);
      if (id + 1 < plan->stages.size())
        CHECK(need.output == plan->edges[id].bytes);
      module->destroy(instance);
    }
  }
}
