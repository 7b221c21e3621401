//===- runtime/CheckpointFiles.h - The files of a checkpoint --------------===//
//
// A part, little-endian: the magic "SLUICECP", version (4 bytes), number of
// tensors (4); of each its name (4 bytes of length, bytes), the number of its
// ranges (4), and of each of these its length (8) and bytes: the data, then
// what the optimizer keeps. At the end the hash of all before (16).
//
// The list is text: a line "sluice checkpoint 1", then "steps N", "parts N",
// and of each part its hash.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_CHECKPOINTFILES_H
#define SLUICE_RUNTIME_CHECKPOINTFILES_H

#include "ir/ContentHash.h"
#include "ir/Status.h"
#include "runtime/sluice.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sluice::runtime {

std::string partPath(const std::string &folder, uint32_t part);

Status writePart(const std::string &path,
                 std::span<const sluice_tensor> tensors);

/// The hash at the end of a part, which is not compared.
Status readPartHash(const std::string &path, ContentHash &hash);

/// Compares a part's hash with its content and with `hash`.
Status checkPart(const std::string &path, const ContentHash &hash);

/// A tensor of a part: offset and length of each of its ranges.
struct PartEntry {
  std::string name;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
};

/// The tensors of a part, in its order. Bounds are checked.
Status readPartList(const std::string &path, std::vector<PartEntry> &entries);

/// Reads `bytes` bytes at `offset` of the file `path`.
Status readRange(const std::string &path, uint64_t offset, void *to,
                 uint64_t bytes);

/// The list of a checkpoint's parts.
struct CheckpointList {
  uint64_t steps = 0;
  std::vector<ContentHash> parts;
};
Status writeList(const std::string &folder, const CheckpointList &list);
Status readList(const std::string &folder, CheckpointList &list);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_CHECKPOINTFILES_H
