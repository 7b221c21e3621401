#include "compiler/simulate/PartNotes.h"

#include "ir/LiveBytes.h"

#include <algorithm>

namespace sluice {

/// What the rank that saves most does not hold of the optimizer.
static void noteOptimizer(const Plan &plan, std::vector<std::string> &notes) {
  Bytes kept = 0, saved = 0;
  uint32_t most = 1;
  Id which = 0;
  for (Id number = 0; number < plan.ranks.size(); ++number) {
    Bytes keeps = 0, saves = 0;
    for (const Buffer &of : plan.ranks[number].buffers) {
      if (of.kind != BufferKind::Optimizer)
        continue;
      const uint32_t count = plan.stages[of.stage].optimizerParts;
      most = std::max(most, count);
      keeps += of.bytes;
      saves += of.bytes * (count - 1);
    }
    if (saves > saved) {
      kept = keeps;
      saved = saves;
      which = number;
    }
  }
  if (most > 1)
    notes.push_back("optimizer: in " + std::to_string(most) +
                    " equal parts, one for each replica: rank " +
                    std::to_string(which) + " holds " + formatBytes(kept) +
                    " of " + formatBytes(kept + saved));
}

namespace {
/// Gradients of a rank, in bytes.
struct Gradients {
  Bytes kept = 0;     ///< for the whole run
  Bytes passing = 0;  ///< most of those of single microbatches at a time
  Bytes whole = 0;    ///< if none were kept in parts
  uint32_t parts = 1; ///< the most of a stage that keeps one
};
} // namespace

static Gradients gradientsOf(const Plan &plan, const RankPlan &rank) {
  Gradients of;
  for (const Buffer &buffer : rank.buffers) {
    if (buffer.kind != BufferKind::Gradients)
      continue;
    const Stage &stage = plan.stages[buffer.stage];
    of.kept += buffer.bytes;
    of.whole += stage.bytes.gradients;
    if (stage.gradientsPartitioned)
      of.parts = std::max(of.parts, stage.gradientParts);
  }
  if (of.parts == 1)
    return of;
  std::vector<Bytes> begins(rank.ops.size(), 0), ends(rank.ops.size(), 0);
  for (const Life &life : livesOf(rank))
    if (rank.buffers[life.buffer].kind == BufferKind::WholeGradients) {
      begins[life.first] += rank.buffers[life.buffer].bytes;
      ends[life.last] += rank.buffers[life.buffer].bytes;
    }
  Bytes live = 0;
  for (size_t op = 0; op < rank.ops.size(); ++op) {
    live += begins[op];
    of.passing = std::max(of.passing, live);
    live -= ends[op];
  }
  return of;
}

/// What the rank with most gradients holds of them, where some keep a part.
static void noteGradients(const Plan &plan, std::vector<std::string> &notes) {
  Gradients most;
  Id which = kNone;
  for (Id number = 0; number < plan.ranks.size(); ++number)
    if (Gradients of = gradientsOf(plan, plan.ranks[number]);
        of.parts > 1 &&
        (which == kNone || of.kept + of.passing > most.kept + most.passing)) {
      most = of;
      which = number;
    }
  if (which == kNone)
    return;
  const Bytes held = most.kept + most.passing;
  notes.push_back("gradients: in " + std::to_string(most.parts) +
                  " equal parts between microbatches: rank " +
                  std::to_string(which) + " keeps " + formatBytes(most.kept) +
                  ", and up to " + formatBytes(most.passing) +
                  " of microbatches until they are summed; whole they are " +
                  formatBytes(most.whole));
  if (held >= most.whole)
    notes.push_back(
        "zero 2 holds no fewer gradients than zero 1 here (" +
        formatBytes(held) + " against " + formatBytes(most.whole) +
        "): a microbatch has gradients of its whole stage until they are "
        "summed, so that only ranks of several stages (virtual_stages) save");
}

std::vector<std::string> partNotes(const Plan &plan) {
  std::vector<std::string> notes;
  noteOptimizer(plan, notes);
  noteGradients(plan, notes);
  return notes;
}

} // namespace sluice
