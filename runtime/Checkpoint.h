//===- runtime/Checkpoint.h - The state of a job between two steps --------===//
//
// A checkpoint is a folder "step-N": the state after N steps. Every rank of the
// first replica writes its part into "step-N.partial"; whoever is the last then
// adds the list of the parts with their hashes and gives the folder its name.
// So a folder that has its name is whole, unless the disk lost what it had
// promised to keep: all hashes are compared before one is taken.
//
// A part holds tensors by their names, with what the optimizer keeps of them.
// Nothing in it depends on ranks, stages or the schedule, so that a job can go
// on under others.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CHECKPOINT_H
#define SLUICE_RUNTIME_CHECKPOINT_H

#include "ir/Ops.h"
#include "ir/Status.h"
#include "runtime/sluice.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::runtime {

/// How many of a directory's checkpoints are kept, the newest ones.
inline constexpr size_t kKeptCheckpoints = 2;

struct FoundCheckpoint {
  std::string folder;
  uint64_t steps = 0; ///< that were taken before it
};

/// The newest checkpoint of `directory` that is whole, none if there is none or
/// no directory. `skipped` takes a sentence about each newer one that is not.
/// Reads all of it. Fault::Environment where the directory cannot be read.
Status findCheckpoint(const std::string &directory,
                      std::optional<FoundCheckpoint> &found,
                      std::vector<std::string> &skipped);

/// Writes the checkpoints of one job. Parts may be written side by side.
class CheckpointWriter {
public:
  CheckpointWriter(std::string into, uint32_t partCount)
      : directory(std::move(into)), parts(partCount) {}

  /// Makes the directory, and removes what a job that was ended in the middle
  /// of one has left. Before the first part, of one process alone.
  Status prepare() const;
  /// Writes what `tensors` hold after `steps` steps as part `part`.
  Status write(uint64_t steps, uint32_t part,
               std::span<const sluice_tensor> tensors) const;
  /// Where the checkpoint of `steps` is when it is complete.
  std::string folder(uint64_t steps) const;
  /// Once all parts of `steps` are written: makes them a checkpoint, and
  /// removes the oldest ones.
  Status complete(uint64_t steps) const;

private:
  std::string directory;
  uint32_t parts;
};

/// One checkpoint, to be read from several threads.
class CheckpointReader {
public:
  /// Reads the lists of its tensors. What findCheckpoint found is trusted to be
  /// whole, but not to be anything.
  Status open(const FoundCheckpoint &checkpoint);
  uint64_t steps() const { return taken; }
  /// Fills `tensors`. One that the checkpoint lacks, or has in another size, is
  /// Fault::Input: it is of another model.
  Status read(std::span<const sluice_tensor> tensors) const;

private:
  struct Range {
    uint64_t offset, bytes;
  };
  struct Entry {
    uint32_t part = 0;
    std::vector<Range> ranges; ///< of the data, then of each state
  };
  Status openPart(uint32_t part);
  Status readTensor(const sluice_tensor &tensor) const;

  std::string folder;
  uint64_t taken = 0;
  std::map<std::string, Entry, std::less<>> entries;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_CHECKPOINT_H
