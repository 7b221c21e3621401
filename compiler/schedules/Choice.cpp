#include "compiler/schedules/Choice.h"

#include "compiler/schedules/OrdersText.h"
#include "compiler/spec/Sections.h"
#include "ir/text/TextFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

namespace sluice {

namespace {

std::vector<std::string_view>
namesOf(llvm::function_ref<bool(const ScheduleInfo &)> which) {
  std::vector<std::string_view> names;
  for (const ScheduleInfo &info : allSchedules())
    if (which(info))
      names.push_back(info.text);
  return names;
}

class Chooser {
public:
  Chooser(const Spec &spec, Diagnostics &sink)
      : spec(spec), pipeline(spec.pipeline), diagnostics(sink),
        errorsBefore(sink.errorCount()) {}

  std::optional<ScheduleChoice> choose() {
    choice.sizes.ranks = pipeline.ranks;
    choice.sizes.microbatches = pipeline.microbatches;
    if (pipeline.scheduleCsv.given)
      csv();
    else if (pipeline.ownOrders)
      ownOrders();
    else
      named();
    if (diagnostics.errorCount() != errorsBefore)
      return std::nullopt;
    return std::move(choice);
  }

private:
  Diagnostic &fail(SourceLocation where, const std::string &message) {
    return diagnostics.error(where, message);
  }

  void named();
  void unknown();
  void sizes();
  void group();
  void place();
  void placeAsListed(const std::vector<uint32_t> &list);
  Diagnostic &otherPlacement(std::string_view given);
  void backward();
  void rules();

  void csv();
  void ownOrders();
  void take(std::span<const ActionLine> lines, char separator);
  void noEffect(bool given, SourceLocation where, const char *key) {
    if (given)
      diagnostics.warning(where, "pipeline." + std::string(key) +
                                     " has no effect with schedule " +
                                     pipeline.schedule.value);
  }

  const Spec &spec;
  const PipelineSpec &pipeline;
  Diagnostics &diagnostics;
  unsigned errorsBefore;
  ScheduleChoice choice;
};

void Chooser::named() {
  choice.info = findSchedule(pipeline.schedule.value);
  if (!choice.info)
    return unknown();
  sizes();
  group();
  if (diagnostics.errorCount() == errorsBefore)
    place();
  backward();
  rules();
}

void Chooser::unknown() {
  const Located<std::string> &name = pipeline.schedule;
  std::vector<std::string_view> names =
      namesOf([](const ScheduleInfo &) { return true; });
  Diagnostic &diagnostic =
      fail(name.where, "there is no schedule '" + name.value + "'");
  std::string lower = llvm::StringRef(name.value).lower();
  for (std::string_view known : names)
    if (llvm::StringRef(known).edit_distance(lower) <= 1)
      diagnostic.note("did you mean '" + std::string(known) + "'?");
  diagnostic.note("known schedules: " + llvm::join(names, ", "));
}

void Chooser::sizes() {
  const Located<uint32_t> &chunks = pipeline.virtualStages;
  uint32_t needed = choice.info->chunks;
  choice.sizes.chunks =
      chunks.given ? chunks.value : choice.info->usualChunks();
  choice.stages = choice.sizes.ranks * choice.sizes.chunks;
  if (uint64_t cells = uint64_t(choice.stages) * choice.sizes.microbatches;
      cells > kMaxStageMicrobatches)
    fail(pipeline.microbatches.where, number(choice.stages) + " stages by " +
                                          number(choice.sizes.microbatches) +
                                          " microbatches are " + number(cells) +
                                          ", must be at most " +
                                          number(kMaxStageMicrobatches));
  if (needed != 0 && choice.sizes.chunks != needed)
    fail(chunks.where, "schedule " + std::string(choice.info->text) + " has " +
                           number(needed) + " virtual stage" +
                           (needed == 1 ? "" : "s") + " per rank, not " +
                           number(chunks))
        .note("set pipeline.virtual_stages to " + number(needed));
}

/// Microbatches that a chunk runs before the next: p, unless the spec says so.
void Chooser::group() {
  uint32_t p = choice.sizes.ranks, m = choice.sizes.microbatches;
  bool grouped = choice.info->lanes == Lanes::Groups;
  choice.sizes.groupSize = grouped ? p : m;
  if (!grouped)
    return noEffect(pipeline.groupSize.given, pipeline.groupSize.where,
                    "group_size");
  if (!pipeline.groupSize.given)
    return;
  uint32_t rounds = std::max(1u, m / p);
  if (!pipeline.groupSize.value)
    choice.sizes.groupSize = (m + rounds - 1) / rounds;
  else
    choice.sizes.groupSize = *pipeline.groupSize.value;
}

void Chooser::place() {
  const auto *list = std::get_if<std::vector<uint32_t>>(&*pipeline.placement);
  PlacementKind kind = choice.info->placement;
  choice.placement = Placement(kind, choice.sizes.ranks, choice.stages,
                               choice.sizes.microbatches);
  if (!pipeline.placement.given)
    return;
  if (list) {
    if (choice.info->takesList())
      return placeAsListed(*list);
    otherPlacement("a list").note(
        "schedules that take a list: " +
        llvm::join(
            namesOf([](const ScheduleInfo &info) { return info.takesList(); }),
            ", "));
    return;
  }
  PlacementKind given = std::get<PlacementKind>(*pipeline.placement);
  if (given != kind)
    otherPlacement(placementName(given));
}

Diagnostic &Chooser::otherPlacement(std::string_view given) {
  return fail(pipeline.placement.where,
              "schedule " + std::string(choice.info->text) +
                  " needs placement " +
                  std::string(placementName(choice.info->placement)) +
                  ", not " + std::string(given))
      .note("leave pipeline.placement out: it follows the schedule");
}

void Chooser::placeAsListed(const std::vector<uint32_t> &list) {
  SourceLocation where = pipeline.placement.where;
  uint32_t p = choice.sizes.ranks, chunks = choice.sizes.chunks;
  std::string each = number(p) + " ranks of " + number(chunks) +
                     (chunks == 1 ? " stage" : " stages") + " each";
  if (list.size() != choice.stages) {
    fail(where, "placement has " + number(list.size()) +
                    (list.size() == 1 ? " entry" : " entries") +
                    ", there are " + number(choice.stages) + " stages")
        .note("it names the rank of each stage in turn: " + each);
    return;
  }
  std::vector<uint32_t> held(p, 0);
  for (uint32_t rank : list)
    if (rank < p)
      ++held[rank];
    else
      fail(where, "placement names rank " + number(rank) + ", there are " +
                      number(p) + " ranks");
  if (diagnostics.errorCount() != errorsBefore)
    return;
  for (uint32_t rank = 0; rank < p; ++rank)
    if (held[rank] != chunks) {
      fail(where, "placement puts " + number(held[rank]) +
                      (held[rank] == 1 ? " stage" : " stages") + " on rank " +
                      number(rank) + ", not " + number(chunks))
          .note("schedule " + std::string(choice.info->text) + " runs on " +
                each);
      return;
    }
  choice.placement = Placement(list, p);
}

void Chooser::backward() {
  const Located<BackwardMode> &mode = pipeline.backward;
  std::string name(choice.info->text);
  switch (choice.info->backward) {
  case BackwardRule::Either:
    choice.splitBackward = mode.value == BackwardMode::Split;
    return;
  case BackwardRule::Split:
  case BackwardRule::Mixed:
    if (mode.value == BackwardMode::Fused)
      fail(mode.where, "schedule " + name +
                           " splits backwards: it lives on moving the weight "
                           "gradients apart")
          .note("leave pipeline.backward out: it follows the schedule");
    if (choice.info->backward == BackwardRule::Mixed &&
        mode.value == BackwardMode::Split)
      noEffect(true, mode.where, "backward");
    return;
  case BackwardRule::None:
    choice.trains = false;
    return noEffect(mode.given, mode.where, "backward");
  }
}

void Chooser::rules() {
  auto where = [&](RuleKey key) {
    auto first = [&](const auto &of) {
      return of.given ? of.where : pipeline.schedule.where;
    };
    switch (key) {
    case RuleKey::Ranks:
      return first(pipeline.ranks);
    case RuleKey::VirtualStages:
      return first(pipeline.virtualStages);
    case RuleKey::Microbatches:
      return first(pipeline.microbatches);
    case RuleKey::GroupSize:
      return first(pipeline.groupSize);
    }
    return pipeline.where;
  };
  choice.info->check(choice.sizes, [&](bool isError, RuleKey key,
                                       std::string message, std::string note) {
    Diagnostic &told =
        isError ? diagnostics.error(where(key), std::move(message))
                : diagnostics.warning(where(key), std::move(message));
    if (!note.empty())
      told.note(std::move(note));
  });
}

//===----------------------------------------------------------------------===//
// Orders of the user's own
//===----------------------------------------------------------------------===//

void Chooser::csv() {
  std::string path = scheduleCsvPath(spec);
  std::string text;
  if (Status status = readTextFile(path, text); !status.ok()) {
    fail(pipeline.scheduleCsv.where, status.message());
    return;
  }
  uint32_t file = diagnostics.addSource(path, text);
  std::vector<ActionLine> lines = linesOfCsv(text, file);
  take(lines, ',');
}

void Chooser::ownOrders() {
  std::vector<ActionLine> lines;
  for (const Located<std::string> &line : pipeline.scheduleOrders)
    lines.push_back({line.value, line.where, false});
  take(lines, ' ');
}

void Chooser::take(std::span<const ActionLine> lines, char separator) {
  SourceLocation where = pipeline.schedule.where;
  uint32_t p = choice.sizes.ranks;
  if (lines.size() != p)
    fail(where, "there are orders for " + number(lines.size()) +
                    (lines.size() == 1 ? " rank" : " ranks") + ", not for " +
                    number(p) + " (pipeline.ranks)");
  const Located<uint32_t> &chunks = pipeline.virtualStages;
  OrderLimits limits{chunks.given ? p * chunks.value : uint32_t(kMaxStages),
                     chunks.given, choice.sizes.microbatches};
  Orders orders =
      parseOrders(lines, separator, limits, choice.stages, diagnostics);
  if (diagnostics.errorCount() != errorsBefore)
    return;
  if (orders.entries.empty()) {
    fail(where, "the orders name no operation");
    return;
  }
  choice.sizes.chunks = (choice.stages + p - 1) / p;
  orders.name = pipeline.schedule.value;
  std::vector<Id> rankOfStage(choice.stages, 0);
  for (Id rank = 0; rank < p; ++rank)
    for (const OrderEntry &entry : orders.rank(rank))
      rankOfStage[entry.stage] = rank;
  choice.placement = Placement(std::move(rankOfStage), p);
  choice.trains = llvm::any_of(orders.entries, [](const OrderEntry &entry) {
    return entry.op != Op::Forward;
  });
  choice.orders = std::move(orders);
  noEffect(pipeline.placement.given, pipeline.placement.where, "placement");
  noEffect(pipeline.groupSize.given, pipeline.groupSize.where, "group_size");
  noEffect(pipeline.backward.given, pipeline.backward.where, "backward");
  noEffect(pipeline.warmup.given, pipeline.warmup.where, "warmup");
}

} // namespace

std::optional<ScheduleChoice> chooseSchedule(const Spec &spec,
                                             Diagnostics &diagnostics) {
  return Chooser(spec, diagnostics).choose();
}

} // namespace sluice
