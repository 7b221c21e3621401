//===- runtime/ExecutorLoader.h - From a plan to flat records ------------===//
//
// Inner header of ExecutorLoader.cpp (lists, stages) and ExecutorOperands.cpp
// (what an operation works on).
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_EXECUTORLOADER_H
#define SLUICE_RUNTIME_EXECUTORLOADER_H

#include "runtime/Executor.h"
#include "runtime/Standing.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::runtime {

/// Builds one executor. Every function returns at the first fault.
class ExecutorLoader {
public:
  ExecutorLoader(const Plan &wholePlan, GlobalRank self,
                 const sluice_module &stageModule, Executor &target)
      : plan(wholePlan), rank(self.rank), replica(self.replica),
        list(wholePlan.ranks[self.rank]), module(stageModule), executor(target),
        collectives(collectivesOf(wholePlan, self.replica)) {}

  Status run(Backend &device);

private:
  Status makeStages();
  Status makeStage(Executor::StageSlot &slot);
  void addSlots();
  void addNeighbours();
  void addCollective(sluice_stage &facts, const PlanOp &op) const;
  void fillFacts(Executor::StageSlot &slot) const;
  Status checkLists() const;
  Status checkGroup(uint32_t first, uint32_t end) const;
  RankNeeds countNeeds() const;
  void makeSteps();
  void makeGroup(uint32_t first, uint32_t end);
  Status bindStages();
  Status bindStage(Executor::StageSlot &slot);
  void findState();
  void takeParts(Executor::StageSlot &slot) const;
  Status prepareOps();
  Status prepareOp(uint32_t op);
  Status prepareCommunication(uint32_t op);
  Status prepareAdd(uint32_t op);
  Status prepareCopy(uint32_t op);
  Status prepareTied(uint32_t op);
  using Prepare = Status (ExecutorLoader::*)(uint32_t op, sluice_call &call);
  Status prepareCompute(uint32_t op, Prepare prepare);
  Status prepareForward(uint32_t op, sluice_call &call);
  Status prepareRecompute(uint32_t op, sluice_call &call);
  Status prepareSaved(uint32_t op, sluice_call &call);
  Status prepareCheckpoint(uint32_t op, sluice_call &call);
  Status prepareBackward(uint32_t op, sluice_call &call);
  Status prepareKept(uint32_t op, sluice_call &call);
  Status prepareWeight(uint32_t op, sluice_call &call);
  Status prepareGradients(uint32_t op, sluice_call &call);

  uint32_t groupEnd(uint32_t first) const;
  sluice_buffer bufferAt(Id id) const;
  Status need(Id stage, std::string_view what, Bytes needs, Bytes has) const;
  Status needAt(uint32_t op, std::string_view what, Bytes needs,
                Bytes has) const;
  Status single(uint32_t op, BufferKind kind, bool write,
                sluice_buffer &buffer) const;
  Status edgeBuffers(uint32_t op, BufferKind kind, bool write, bool inputs,
                     Bytes needs, const sluice_buffer *&array);
  std::string opText(uint32_t op) const {
    return "rank " + std::to_string(rank) + ", operation " +
           describeOp(plan, rank, op);
  }

  const Plan &plan;
  const Id rank, replica;
  const RankPlan &list;
  const sluice_module &module;
  Executor &executor;
  const std::vector<Id> collectives; ///< of the backend, per one of the plan
  std::vector<uint32_t> slotOfStage; ///< kNone: not on this rank
  uint32_t events = 0;
  std::byte *base = nullptr, *hostBase = nullptr; ///< of the two arenas
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_EXECUTORLOADER_H
