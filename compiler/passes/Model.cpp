//===- compiler/passes/Model.cpp - Passes `build-model` and `partition` ---===//
//
// build-model: needs a spec, gives its layers. partition: cuts them into
// as many stages as the schedule has, with the recompute policy of each, by a
// search where the spec leaves that open. Both fail on what keys of the spec
// mean together, with their places.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Transformer.h"
#include "compiler/passes/PassManager.h"
#include "compiler/passes/RecomputeSearch.h"

#include "llvm/ADT/STLExtras.h"

namespace sluice {

bool passes::BuildModel(Compilation &c) {
  c.model = buildModel(*c.spec, c.diagnostics);
  return c.model.has_value();
}

/// Takes from a stage what only training needs. What a transformer's forward
/// would save, it still writes on its way.
static void dropBackward(Stage &stage, bool isTransformer) {
  if (isTransformer)
    stage.bytes.workspace += stage.bytes.activation;
  stage.backward = false;
  stage.backwardInput = stage.backwardWeight = 0;
  stage.bytes.gradients = stage.bytes.optimizer = stage.bytes.norms = 0;
  stage.bytes.activation = stage.bytes.keptForWeight = 0;
  stage.recomputePolicy = RecomputePolicy::None;
  stage.offload = false;
  stage.bytes.checkpoint = 0;
  stage.recompute = 0;
  stage.tiedTo = kNone;
  stage.bytes.tied = 0;
  stage.optimizerParts = stage.gradientParts = 1;
  stage.gradientsPartitioned = false;
}

/// Adds what the run section of a transformer asks for.
static void addRunBytes(const Spec &spec, std::vector<Stage> &stages) {
  for (Stage &stage : stages) {
    if (spec.run.gradientGroups > 1)
      stage.bytes.gradients *= 2; // of the group at hand, and of those before
    if (!spec.run.clipNorm.given)
      continue;
    stage.bytes.norms = normBytes(*spec.model.transformer);
    stage.gradientParts = 1; // norms are those of whole tensors
    stage.gradientsPartitioned = false;
  }
}

/// Tells which stages zero 2 leaves with whole gradients, and why.
static void warnOfWhole(Compilation &c, bool haveTwoCopies) {
  std::string which;
  size_t count = 0;
  for (size_t stage = 0; stage < c.stages->stages.size(); ++stage)
    if (!c.stages->stages[stage].gradientsPartitioned) {
      ++count;
      which += (which.empty() ? "" : ", ") + std::to_string(stage);
    }
  if (count == 0)
    return;
  const bool isAll = count == c.stages->stages.size();
  const std::string why =
      c.spec->run.clipNorm.given
          ? "run.clip_norm takes norms of whole gradients"
      : haveTwoCopies ? "the two copies of a stage in schedule " +
                            c.spec->pipeline.schedule.value +
                            " add each other's whole gradients"
                      : "the table that embedding and head share has its "
                        "gradients summed whole";
  c.diagnostics.warning(c.spec->pipeline.zero.where,
                        "pipeline.zero 2 leaves the gradients of " +
                            (isAll        ? "all stages"
                             : count == 1 ? "stage " + which
                                          : "stages " + which) +
                            " whole, as zero 1 does: " + why);
}

/// Tells of a policy that no stage follows.
static void checkRecompute(Compilation &c) {
  const Located<Recompute> &given = c.spec->pipeline.recompute;
  const auto *all = std::get_if<RecomputePolicy>(&*given);
  const auto *list = std::get_if<std::vector<RecomputePolicy>>(&*given);
  auto asks = [](RecomputePolicy of) { return of != RecomputePolicy::None; };
  bool isAsked = all    ? asks(*all)
                 : list ? llvm::any_of(*list, asks)
                        : !c.choice->trains; // auto may have chosen none
  if (!isAsked || llvm::any_of(c.stages->stages,
                               [](const Stage &of) { return of.recomputes(); }))
    return;
  Diagnostic &told = c.diagnostics.warning(
      given.where, "pipeline.recompute has no effect" +
                       (c.choice->trains ? std::string()
                                         : " with schedule " +
                                               c.spec->pipeline.schedule.value +
                                               ", which has no backward"));
  if (c.choice->trains && all)
    told.note("selective makes again what I needs and W does not, as the "
              "matrix of an attention that is not flash attention; the layers "
              "save nothing of the kind");
}

/// Copies need a link to go over; without copies the link has no effect.
static bool checkOffload(Compilation &c) {
  const Located<Offload> &given = c.spec->pipeline.offload;
  const Located<std::optional<LinkSpec>> &link = c.spec->cluster.hostLink;
  auto has = [&](auto of) { return llvm::any_of(c.stages->stages, of); };
  const auto *list = std::get_if<std::vector<bool>>(&*given);
  bool isAsked =
      list ? llvm::is_contained(*list, true) : std::get<bool>(*given);
  if (isAsked && !has([](const Stage &of) { return of.offload; }))
    c.diagnostics.warning(given.where,
                          "pipeline.offload has no effect with schedule " +
                              c.spec->pipeline.schedule.value +
                              ", which has no backward");
  if (!isAsked && link.given)
    c.diagnostics.warning(link.where, "cluster.host_link has no effect without "
                                      "pipeline.offload");
  Bytes most = 0;
  for (const Stage &of : c.stages->stages)
    most = std::max(most, of.offload ? of.leftBytes() : 0);
  if (most == 0 || link.given)
    return true;
  c.diagnostics
      .error(given.where, "pipeline.offload may move " + formatBytes(most) +
                              " a microbatch and stage to host memory, but "
                              "cluster.host_link is not given")
      .note(std::string("host_link: ") +
            (c.model->timeUnit == TimeUnit::Seconds
                 ? "{latency: 10us, bandwidth: 25GB/s}"
                 : "{bandwidth: 1MB}, bytes in a unit of time,") +
            " under cluster says how fast; without bandwidth size does not "
            "matter");
  return false;
}

bool passes::PartitionModel(Compilation &c) {
  std::optional<Spec> chosen;
  if (std::holds_alternative<RecomputeAuto>(*c.spec->pipeline.recompute)) {
    chosen = c.spec;
    chosen->pipeline.recompute.value =
        Recompute(searchRecompute(*c.spec, c.choice->stages));
  }
  c.stages = partition(chosen ? *chosen : *c.spec, *c.model, c.choice->stages,
                       c.diagnostics);
  if (!c.stages)
    return false;
  c.stages->replicas = c.model->replicas;
  if (c.spec->model.transformer)
    addRunBytes(*c.spec, c.stages->stages);
  const bool hasTwo = c.choice->placement.copies() > 1;
  if (hasTwo) // each adds the whole ones of both
    for (Stage &stage : c.stages->stages)
      stage.gradientsPartitioned = false;
  if (c.model->gradientsPartitioned && c.choice->trains)
    warnOfWhole(c, hasTwo);
  if (!c.choice->trains)
    for (Stage &stage : c.stages->stages)
      dropBackward(stage, c.spec->model.transformer.has_value());
  checkRecompute(c);
  return checkOffload(c);
}

} // namespace sluice
