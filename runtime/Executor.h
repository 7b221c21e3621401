//===- runtime/Executor.h - Walks the list of one rank -------------------===//
//
// Loading does all that can be done once: it checks capacities, creates the
// stages, turns every operation into a flat record with its pointers. A step
// then is wait, launch, record: no allocation, no search, no strings.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_EXECUTOR_H
#define SLUICE_RUNTIME_EXECUTOR_H

#include "ir/Plan.h"
#include "ir/Status.h"
#include "runtime/Backend.h"
#include "runtime/Replicas.h"
#include "runtime/sluice.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::runtime {

/// Time spent in one function of a stage's module.
struct CostSum {
  int64_t nanoseconds = 0;
  uint64_t calls = 0;
  double meanSeconds() const {
    return calls == 0 ? 0
                      : 1e-9 * static_cast<double>(nanoseconds) /
                            static_cast<double>(calls);
  }
};

/// ... and in all of them.
struct StageCostSums {
  CostSum forward;
  CostSum recompute;
  CostSum backwardInput;
  CostSum backwardWeight;
  CostSum optimizerStep;
};

/// The loss of a step, if a stage of the rank has one.
struct Loss {
  double value = 0;
  bool has = false;
};

class Executor final : public Compute {
public:
  /// Creates the stages of rank `self`, prepares `backend` and binds the
  /// memory. `plan` must have passed checkStructure; that it is right is
  /// trusted. Refuses what the module cannot do with the plan's buffers, by
  /// name and numbers. `module` and `backend` must outlive the executor; the
  /// plan need not. Linear in the rank's list (operations, waits, operands,
  /// buffers) and in the plan's stages, edges, channels and run section. Throws
  /// std::bad_alloc where memory is short.
  static Status load(const Plan &plan, GlobalRank self,
                     const sluice_module &module, Backend &backend,
                     RankProgress &progress,
                     std::unique_ptr<Executor> &executor);
  ~Executor() override;

  /// Runs one step to its end. Numbers must rise. What a module throws is a
  /// failure, except std::bad_alloc, which gets through, as from `loss`.
  Outcome step(uint64_t number, Failure &failure);

  /// The loss after a step.
  bool loss(Loss &result, Failure &failure);

  /// From here on adds the time of every call to costs[i] of the i-th stage of
  /// the rank; null switches that off. Two clock reads a call.
  void measure(StageCostSums *costs) { costSums = costs; }

  uint32_t operations() const { return static_cast<uint32_t>(steps.size()); }
  uint32_t stageCount() const { return static_cast<uint32_t>(stages.size()); }
  Id stageId(uint32_t index) const { return stages[index]->facts.stage; }
  void *instance(uint32_t index) const { return stages[index]->instance; }

  bool compute(uint32_t op, void *stream, Failure &failure) override;

private:
  friend class ExecutorLoader;
  using CallFunction = int (*)(void *, const sluice_call *, sluice_error *);

  /// One stage of the rank. Never moves: the module holds pointers into it.
  struct StageSlot {
    sluice_stage facts = {};
    std::vector<uint32_t> inputs;
    std::vector<uint32_t> outputs;
    std::string description;
    sluice_bytes needs = {};
    sluice_state state = {};
    void *instance = nullptr;
  };

  /// One operation, ready to go.
  struct Step {
    void *data = nullptr; ///< of a message, or other gradients to add
    void *part = nullptr; ///< of a collective, where its own part goes
    Bytes bytes = 0;
    uint32_t firstWait = 0; ///< in waitEvents
    uint32_t lastWait = 0;
    uint32_t event = kNone; ///< that it records
    uint32_t index = kNone; ///< in calls, or the channel or collective, or in
                            ///< pieces
    uint32_t pieces = 0;    ///< of a copy
    uint32_t stage = kNone; ///< in stages
    uint32_t groupEnd = 0;  ///< position after its group
    uint32_t firstJoin = 0; ///< in joins, of a group's first operation
    uint32_t lastJoin = 0;
    Op op = Op::Forward;
    uint8_t stream = 0; ///< that runs it: of a group, that of its first
  };

  /// A stream of which a group has members, but not the first: it comes to the
  /// group's stream before, and goes on after.
  struct Join {
    uint32_t came; ///< event that it records
    uint32_t left; ///< event that it waits for
    uint8_t stream;
  };

  Executor(const sluice_module &stageModule, Backend &device,
           RankProgress &told)
      : module(stageModule), backend(device), progress(told) {}
  std::span<const Join> joinsOf(uint32_t position) const {
    const Step &step = steps[position];
    return std::span(joins).subspan(step.firstJoin,
                                    step.lastJoin - step.firstJoin);
  }
  uint32_t enqueue(uint32_t position);
  void enqueueOp(uint32_t position);
  bool stepOptimizer(const Step &step, void *stream, CostSum *cost,
                     Failure &failure);

  const sluice_module &module;
  Backend &backend;
  RankProgress &progress;
  std::string run; ///< the plan's run section, as the modules read it
  std::vector<std::unique_ptr<StageSlot>> stages;
  std::vector<Step> steps;
  std::vector<Join> joins;
  std::vector<uint32_t> waitEvents;
  std::vector<sluice_call> calls;
  std::vector<sluice_buffer> callBuffers;
  std::vector<CopyPiece> pieces;
  StageCostSums *costSums = nullptr;
  uint64_t current = 0;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_EXECUTOR_H
