#include "compiler/passes/PassManager.h"

#include "ir/text/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"

#include <chrono>

namespace sluice {

llvm::StringRef artifactName(Artifact artifact) {
  switch (artifact) {
  case Artifact::Spec:
    return "spec";
  case Artifact::Model:
    return "model";
  case Artifact::Stages:
    return "stages";
  case Artifact::Graph:
    return "graph";
  case Artifact::Warmup:
    return "warmup counts";
  case Artifact::Schedule:
    return "schedule";
  case Artifact::Timing:
    return "timing";
  case Artifact::Plan:
    return "plan";
  }
  return "";
}

static constexpr Artifacts bit(Artifact artifact) {
  return 1u << static_cast<unsigned>(artifact);
}

#define A(Name) bit(Artifact::Name)
static constexpr PassInfo kPasses[] = {
#define SLUICE_PASS(Name, Text, Requires, Provides, Summary)                   \
  {Text, Requires, Provides, Summary, passes::Name},
#include "compiler/passes/Passes.def"
};
#undef A

llvm::ArrayRef<PassInfo> allPasses() { return kPasses; }

Pipeline fullPipeline() {
  Pipeline pipeline;
  for (const PassInfo &pass : kPasses)
    pipeline.push_back(&pass);
  return pipeline;
}

static const PassInfo *findPass(llvm::StringRef text) {
  const auto *found = llvm::find_if(
      kPasses, [&](const PassInfo &pass) { return pass.text == text; });
  return found == std::end(kPasses) ? nullptr : found;
}

static const PassInfo &nearestPass(llvm::StringRef text) {
  return *std::min_element(std::begin(kPasses), std::end(kPasses),
                           [&](const PassInfo &a, const PassInfo &b) {
                             return text.edit_distance(a.text) <
                                    text.edit_distance(b.text);
                           });
}

/// What is left after a pass made something new: whatever comes later in the
/// walk was made from an older one.
static Artifacts after(const PassInfo &pass, Artifacts available) {
  if (!pass.makes)
    return available;
  Artifacts upToNew = (pass.makes << 1) - 1;
  return (available & upToNew) | pass.makes;
}

bool parsePipeline(llvm::StringRef text, Artifacts available,
                   Pipeline &pipeline, std::string &error) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  text.split(names, ',');
  for (llvm::StringRef name : names) {
    const PassInfo *pass = findPass(name.trim());
    if (!pass) {
      error = "unknown pass '" + escaped(name) + "', the nearest is '" +
              nearestPass(name).text.str() + "'";
      return false;
    }
    for (unsigned i = 0; i < kArtifactCount; ++i)
      if (pass->needs & ~available & (1u << i)) {
        error = "pass '" + pass->text.str() + "' needs a " +
                artifactName(static_cast<Artifact>(i)).str() +
                ", which neither the input nor an earlier pass gives";
        return false;
      }
    available = after(*pass, available);
    pipeline.push_back(pass);
  }
  return true;
}

Artifacts artifactsOf(const Compilation &c) {
  Artifacts present = 0;
  auto add = [&](Artifact artifact, bool there) {
    if (there)
      present |= bit(artifact);
  };
  add(Artifact::Spec, c.spec.has_value());
  add(Artifact::Model, c.model.has_value());
  add(Artifact::Stages, c.stages.has_value());
  add(Artifact::Graph, c.graph.has_value());
  add(Artifact::Warmup, c.warmup.has_value());
  add(Artifact::Schedule, c.schedule.has_value());
  add(Artifact::Timing, c.timing.has_value());
  add(Artifact::Plan, c.plan.has_value());
  return present;
}

/// Drops what `after` says a pass invalidates.
static void invalidate(const PassInfo &pass, Compilation &c) {
  Artifacts keep = after(pass, ~0u);
  auto drop = [&](Artifact artifact, auto &holder) {
    if (!(keep & bit(artifact)))
      holder.reset();
  };
  drop(Artifact::Model, c.model);
  drop(Artifact::Stages, c.stages);
  drop(Artifact::Graph, c.graph);
  drop(Artifact::Warmup, c.warmup);
  drop(Artifact::Schedule, c.schedule);
  drop(Artifact::Timing, c.timing);
  drop(Artifact::Plan, c.plan);
}

bool runPipeline(const Pipeline &pipeline, Compilation &compilation,
                 const PipelineOptions &options) {
  using Clock = std::chrono::steady_clock;
  for (const PassInfo *pass : pipeline) {
    invalidate(*pass, compilation);
    Clock::time_point begin = Clock::now();
    bool ok = pass->run(compilation);
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    if (options.log && options.timePasses)
      *options.log << llvm::format("%10.3f ms  ", seconds * 1e3) << pass->text
                   << '\n';
    if (options.log &&
        llvm::any_of(options.printAfter, [&](const std::string &name) {
          return name == "*" || name == pass->text;
        })) {
      *options.log << "# after " << pass->text << '\n';
      printIr(compilation, *options.log);
    }
    if (!ok)
      return false;
  }
  return true;
}

void printIr(const Compilation &compilation, llvm::raw_ostream &out) {
  out << "sluice-ir 1\n";
  if (compilation.graph)
    printGraph(*compilation.graph, out);
  if (compilation.graph && compilation.schedule)
    printSchedule(*compilation.graph, *compilation.schedule, out);
  if (compilation.plan)
    printPlan(*compilation.plan, out);
}

} // namespace sluice
