//===- ir/AsideFile.h - A file that has its name only when complete -------===//
//
// What is written goes to a neighbour first; commit syncs it and gives
// it the name in one step. Whatever fails or ends before, the file of that name
// is what it was. The neighbour has no name either where the file system can
// (O_TMPFILE), so that nothing is left of it however the process ends;
// elsewhere it is called ".sluice-…".
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

  enum class Neighbour : uint8_t { NamelessIfPossible, Named };
  Status open(const std::string &path,
              Neighbour neighbour = Neighbour::NamelessIfPossible);
  Status append(const void *data, size_t size);
  /// Overwrites bytes that were appended before.
  Status overwrite(uint64_t offset, const void *data, size_t size);
  Status commit();

private:
  Status failure(int error) const;
  Status openAside(Neighbour neighbour);
  bool openNameless();
  Status takeName(bool (AsideFile::*take)(const std::string &));
  bool createNamed(const std::string &candidate);
  bool linkNamed(const std::string &candidate);
  void removeAside();
  Status copyToDevice();

  std::string name;       ///< as given, for messages
  std::string target;     ///< with symbolic links followed
  std::string aside;      ///< empty while the neighbour has no name
  size_t slot = SIZE_MAX; ///< of `aside` among the names to drop
  int file = -1;
  int device = -1;
};

/// Whether `path` can be written, before there is anything to write: tries it
/// without a trace. A device or a pipe is not opened, since that can be seen at
/// its other end.
Status tryToWrite(const std::string &path);

/// Gives the folder `from` another name in the same folder, lastingly.
Status renameFolder(const std::string &from, const std::string &to);

/// Where a path leads: symbolic links followed, also one to a file that is not
/// there yet.
std::string followLinks(std::string path);

/// Removes the neighbours that have a name and are not committed. For the end
/// of the process without destructors, also from a signal handler.
void dropAsideFiles() noexcept;

/// Writes `bytes` as the whole of the file `path`.
Status writeFileAside(const std::string &path, const std::string &bytes);

} // namespace sluice

#endif // SLUICE_IR_ASIDEFILE_H
