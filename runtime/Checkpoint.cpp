#include "runtime/Checkpoint.h"

#include "ir/AsideFile.h"
#include "ir/Diagnostics.h"
#include "runtime/CheckpointFiles.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

namespace sluice::runtime {

namespace fs = std::filesystem;

static constexpr std::string_view kStem = "step-";
static constexpr std::string_view kPartial = ".partial";

static std::string folderOf(const std::string &directory, uint64_t steps) {
  return directory + "/" + std::string(kStem) + std::to_string(steps);
}

static std::string partialOf(const std::string &directory, uint64_t steps) {
  return folderOf(directory, steps) + std::string(kPartial);
}

static Status failure(const std::string &what, const std::string &path,
                      std::error_code error) {
  return Status::environment(what + " " + escaped(path) + ": " +
                             error.message());
}

/// The number of a checkpoint's folder; none of anything else.
static std::optional<uint64_t> stepsOf(const std::string &name) {
  uint64_t steps = 0;
  if (!name.starts_with(kStem))
    return std::nullopt;
  const char *begin = name.data() + kStem.size();
  const char *end = name.data() + name.size();
  auto [stop, error] = std::from_chars(begin, end, steps);
  return error == std::errc() && stop == end &&
                 name == std::string(kStem) + std::to_string(steps)
             ? std::optional(steps)
             : std::nullopt;
}

/// Names of what lies in `directory`.
static Status namesIn(const std::string &directory,
                      std::vector<std::string> &names) {
  std::error_code error;
  fs::directory_iterator at(directory, error), end;
  for (; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  return error ? failure("cannot read the directory", directory, error)
               : Status();
}

/// The steps of all checkpoints, the newest first.
static Status stepsIn(const std::string &directory,
                      std::vector<uint64_t> &steps) {
  std::vector<std::string> names;
  Status status = namesIn(directory, names);
  for (const std::string &name : names)
    if (std::optional<uint64_t> of = stepsOf(name))
      steps.push_back(*of);
  std::sort(steps.rbegin(), steps.rend());
  return status;
}

//===----------------------------------------------------------------------===//
// Finding
//===----------------------------------------------------------------------===//

/// Whether all of it is there as it was written.
static Status checkWhole(const std::string &folder, uint64_t steps) {
  CheckpointList list;
  Status status = readList(folder, list);
  if (status.ok() && list.steps != steps)
    return Status::input(escaped(folder) + " is of " +
                         std::to_string(list.steps) + " steps");
  for (uint32_t part = 0; status.ok() && part < list.parts.size(); ++part)
    status = checkPart(partPath(folder, part), list.parts[part]);
  return status;
}

Status findCheckpoint(const std::string &directory,
                      std::optional<FoundCheckpoint> &found,
                      std::vector<std::string> &skipped) {
  found.reset();
  std::error_code error;
  if (!fs::exists(directory, error) && !error)
    return {};
  std::vector<uint64_t> all;
  if (Status s = stepsIn(directory, all); !s.ok())
    return s;
  for (uint64_t steps : all) {
    std::string folder = folderOf(directory, steps);
    Status whole = checkWhole(folder, steps);
    if (whole.ok()) {
      found = {std::move(folder), steps};
      return {};
    }
    skipped.push_back(escaped(folder) + " is passed over: " + whole.message());
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static Status remove(const std::string &folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  return error ? failure("cannot remove", folder, error) : Status();
}

Status CheckpointWriter::prepare() const {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    return failure("cannot make the directory", directory, error);
  std::vector<std::string> names;
  if (Status s = namesIn(directory, names); !s.ok())
    return s;
  for (const std::string &name : names)
    if (name.ends_with(kPartial) &&
        stepsOf(name.substr(0, name.size() - kPartial.size())))
      if (Status s = remove(directory + "/" + name); !s.ok())
        return s;
  return tryToWrite(directory + "/" + std::string(kStem) + "0");
}

std::string CheckpointWriter::folder(uint64_t steps) const {
  return folderOf(directory, steps);
}

Status CheckpointWriter::write(uint64_t steps, uint32_t part,
                               std::span<const sluice_tensor> tensors) const {
  const std::string folder = partialOf(directory, steps);
  std::error_code error;
  fs::create_directory(folder, error); // or another rank has
  if (error)
    return failure("cannot make the directory", folder, error);
  return writePart(partPath(folder, part), tensors);
}

/// Takes its name from a checkpoint before it is removed, so that none is ever
/// half there.
static Status removeCheckpoint(const std::string &directory, uint64_t steps) {
  const std::string partial = partialOf(directory, steps);
  Status status = renameFolder(folderOf(directory, steps), partial);
  return status.ok() ? remove(partial) : status;
}

Status CheckpointWriter::complete(uint64_t steps) const {
  const std::string partial = partialOf(directory, steps);
  const std::string folder = folderOf(directory, steps);
  CheckpointList list{steps, std::vector<ContentHash>(parts)};
  for (uint32_t part = 0; part < parts; ++part)
    if (Status s = readPartHash(partPath(partial, part), list.parts[part]);
        !s.ok())
      return s;
  if (Status s = writeList(partial, list); !s.ok())
    return s;
  std::error_code error;
  if (fs::exists(folder, error)) // one that was not whole
    if (Status s = remove(folder); !s.ok())
      return s;
  if (Status s = renameFolder(partial, folder); !s.ok())
    return s;
  std::vector<uint64_t> all;
  if (Status s = stepsIn(directory, all); !s.ok())
    return s;
  for (size_t i = kKeptCheckpoints; i < all.size(); ++i)
    if (Status s = removeCheckpoint(directory, all[i]); !s.ok())
      return s;
  return {};
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Status CheckpointReader::open(const FoundCheckpoint &checkpoint) {
  folder = checkpoint.folder;
  taken = checkpoint.steps;
  entries.clear();
  CheckpointList list;
  Status status = readList(folder, list);
  for (uint32_t part = 0; status.ok() && part < list.parts.size(); ++part)
    status = openPart(part);
  return status;
}

Status CheckpointReader::openPart(uint32_t part) {
  std::vector<PartEntry> list;
  if (Status s = readPartList(partPath(folder, part), list); !s.ok())
    return s;
  for (PartEntry &each : list) {
    Entry entry{part, {}};
    for (auto [offset, bytes] : each.ranges)
      entry.ranges.push_back({offset, bytes});
    entries.try_emplace(std::move(each.name), std::move(entry));
  }
  return {};
}

Status CheckpointReader::readTensor(const sluice_tensor &tensor) const {
  const auto found = entries.find(std::string_view(tensor.name));
  const std::string where =
      escaped(folder) + " is of another model: tensor " + escaped(tensor.name);
  if (found == entries.end())
    return Status::input(where + " is not in it");
  const std::vector<Range> &ranges = found->second.ranges;
  if (ranges.size() != 1 + size_t(tensor.state_count))
    return Status::input(where + " has " + std::to_string(ranges.size() - 1) +
                         " states of an optimizer there, " +
                         std::to_string(tensor.state_count) + " here");
  const std::string path = partPath(folder, found->second.part);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const sluice_buffer to = i == 0 ? sluice_buffer{tensor.data, tensor.bytes}
                                    : tensor.states[i - 1];
    if (ranges[i].bytes != to.bytes)
      return Status::input(where + " has " + std::to_string(ranges[i].bytes) +
                           " bytes there, " + std::to_string(to.bytes) +
                           " here");
    if (Status s = readRange(path, ranges[i].offset, to.data, to.bytes);
        !s.ok())
      return s;
  }
  return {};
}

Status CheckpointReader::read(std::span<const sluice_tensor> tensors) const {
  for (const sluice_tensor &tensor : tensors)
    if (Status s = readTensor(tensor); !s.ok())
      return s;
  return {};
}

} // namespace sluice::runtime
