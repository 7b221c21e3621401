//===- ir/AsideFile.h - A file that has its name only when complete -------===//
//
// What is written goes to a neighbour first; commit syncs it and gives
// it the name in one step. Whatever fails or ends before, the file of that name
// is what it was.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_ASIDEFILE_H
#define SLUICE_IR_ASIDEFILE_H

#include "ir/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

/// Failures are Fault::Environment and name the path. A path that names a
/// device or a pipe gets the bytes at commit.
class AsideFile {
public:
  AsideFile() = default;
  AsideFile(const AsideFile &) = delete;
  AsideFile &operator=(const AsideFile &) = delete;
  ~AsideFile(); ///< drops what was not committed

  Status open(const std::string &path);
  Status append(const void *data, size_t size);
  /// Overwrites bytes that were appended before.
  Status overwrite(uint64_t offset, const void *data, size_t size);
  Status commit();

private:
  Status failure(int error) const;
  Status openAside(uint32_t mode, bool exists);
  Status copyToDevice();

  std::string name;   ///< as given, for messages
  std::string target; ///< with symbolic links resolved
  std::string aside;  ///< empty for a device
  int file = -1;
  int device = -1;
};

/// Writes `bytes` as the whole of the file `path`.
Status writeFileAside(const std::string &path, const std::string &bytes);

} // namespace sluice

#endif // SLUICE_IR_ASIDEFILE_H
