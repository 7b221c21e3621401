#include "ir/AsideFile.h"
#include "ir/Diagnostics.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice {

/// Writes all of `data`; returns errno, 0 if it went well. Appends where
/// `offset` is negative.
static int writeAll(int file, const void *data, size_t size, off_t offset) {
  const char *bytes = static_cast<const char *>(data);
  while (size != 0) {
    ssize_t done = offset < 0 ? ::write(file, bytes, size)
                              : ::pwrite(file, bytes, size, offset);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return done < 0 ? errno : EIO;
    bytes += done;
    size -= static_cast<size_t>(done);
    if (offset >= 0)
      offset += done;
  }
  return 0;
}

/// The folder that holds `path`.
static std::string folderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string followLinks(std::string path) {
  constexpr unsigned kMostHops = 40;
  char link[PATH_MAX];
  for (unsigned hops = 0; hops < kMostHops; ++hops) {
    const ssize_t length = ::readlink(path.c_str(), link, sizeof(link));
    if (length < 0)
      return path;
    const std::string to(link, static_cast<size_t>(length));
    path = to[0] == '/' ? to : folderOf(path) + "/" + to;
  }
  return path;
}

//===----------------------------------------------------------------------===//
// Names to drop when the process ends early
//===----------------------------------------------------------------------===//

/// Whoever takes a name out of its slot owns it, so a signal handler and a
/// thread never both do.
static std::array<std::atomic<char *>, 64> namesToDrop;

/// Its slot; SIZE_MAX if all are taken.
static size_t rememberName(const std::string &name) {
  char *copy = ::strdup(name.c_str());
  for (size_t slot = 0; copy && slot < namesToDrop.size(); ++slot) {
    char *none = nullptr;
    if (namesToDrop[slot].compare_exchange_strong(none, copy))
      return slot;
  }
  std::free(copy);
  return SIZE_MAX;
}

static void forgetName(size_t &slot) {
  if (slot != SIZE_MAX)
    std::free(namesToDrop[slot].exchange(nullptr));
  slot = SIZE_MAX;
}

void dropAsideFiles() noexcept {
  for (std::atomic<char *> &slot : namesToDrop)
    if (char *name = slot.exchange(nullptr)) {
      ::unlink(name);
      slot.store(name); // for its owner to free, should the process go on
    }
}

//===----------------------------------------------------------------------===//
// AsideFile
//===----------------------------------------------------------------------===//

AsideFile::~AsideFile() {
  if (file >= 0)
    ::close(file);
  if (device >= 0)
    ::close(device);
  removeAside();
}

void AsideFile::removeAside() {
  if (aside.empty())
    return;
  ::unlink(aside.c_str());
  forgetName(slot);
  aside.clear();
}

Status AsideFile::failure(int error) const {
  return Status::environment("cannot write " + escaped(name) + ": " +
                             std::strerror(error));
}

/// Of an output: errno of what speaks against it, 0 if nothing does.
static int lookAt(const std::string &path, struct stat &about, bool &exists) {
  exists = ::stat(path.c_str(), &about) == 0;
  if (!exists)
    return errno == ENOENT ? 0 : errno;
  if (S_ISDIR(about.st_mode))
    return EISDIR;
  return ::access(path.c_str(), W_OK) != 0 ? errno : 0;
}

Status AsideFile::open(const std::string &path, Neighbour neighbour) {
  name = path;
  struct stat about = {};
  bool exists = false;
  if (int error = lookAt(path, about, exists))
    return failure(error);
  if (exists && !S_ISREG(about.st_mode)) {
    device = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (device < 0)
      return failure(errno);
    file = ::memfd_create("sluice", MFD_CLOEXEC);
    return file < 0 ? failure(errno) : Status();
  }
  target = followLinks(path);
  if (Status s = openAside(neighbour); !s.ok())
    return s;
  if (exists && ::fchmod(file, about.st_mode & 07777) != 0)
    return failure(errno);
  return {};
}

/// By its descriptor, which is how a file without a name is named.
static std::string descriptorPath(int file) {
  return "/proc/self/fd/" + std::to_string(file);
}

bool AsideFile::openNameless() {
  file = ::open(folderOf(target).c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
  if (file >= 0 && ::access(descriptorPath(file).c_str(), F_OK) == 0)
    return true;
  if (file >= 0)
    ::close(file);
  file = -1;
  return false;
}

bool AsideFile::createNamed(const std::string &candidate) {
  file = ::open(candidate.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return file >= 0;
}

bool AsideFile::linkNamed(const std::string &candidate) {
  return ::linkat(AT_FDCWD, descriptorPath(file).c_str(), AT_FDCWD,
                  candidate.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

/// Finds a name beside the target that `take` can take.
Status AsideFile::takeName(bool (AsideFile::*take)(const std::string &)) {
  static std::atomic<unsigned> counter = 0;
  const std::string stem =
      folderOf(target) + "/.sluice-" + std::to_string(::getpid()) + "-";
  for (unsigned tries = 0; tries < 1000; ++tries) {
    const std::string candidate = stem + std::to_string(counter++);
    if ((this->*take)(candidate)) {
      aside = candidate;
      slot = rememberName(aside);
      return {};
    }
    if (errno != EEXIST)
      return failure(errno);
  }
  return failure(EEXIST);
}

Status AsideFile::openAside(Neighbour neighbour) {
  if (neighbour == Neighbour::NamelessIfPossible && openNameless())
    return {};
  return takeName(&AsideFile::createNamed);
}

Status AsideFile::append(const void *data, size_t size) {
  int error = writeAll(file, data, size, -1);
  return error != 0 ? failure(error) : Status();
}

Status AsideFile::overwrite(uint64_t offset, const void *data, size_t size) {
  int error = writeAll(file, data, size, static_cast<off_t>(offset));
  return error != 0 ? failure(error) : Status();
}

Status AsideFile::copyToDevice() {
  if (::lseek(file, 0, SEEK_SET) != 0)
    return failure(errno);
  std::vector<char> block(1 << 20);
  for (;;) {
    ssize_t got = ::read(file, block.data(), block.size());
    if (got == 0)
      return {};
    if (got < 0 && errno != EINTR)
      return failure(errno);
    if (got < 0)
      continue;
    if (int error =
            writeAll(device, block.data(), static_cast<size_t>(got), -1))
      return failure(error);
  }
}

/// Makes the new name of a file in `folder` last. Some file systems cannot sync
/// a folder; they say EINVAL.
static int syncFolder(const std::string &folder) {
  int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0)
    return errno == EACCES ? 0 : errno; // may write there, but not look
  int error = ::fsync(handle) != 0 && errno != EINVAL ? errno : 0;
  ::close(handle);
  return error;
}

Status AsideFile::commit() {
  if (device >= 0)
    return copyToDevice();
  if (::fsync(file) != 0)
    return failure(errno);
  if (aside.empty() && !linkNamed(target)) {
    if (errno != EEXIST)
      return failure(errno);
    // Only rename replaces a file, and it takes a name.
    if (Status s = takeName(&AsideFile::linkNamed); !s.ok())
      return s;
  }
  int closed = ::close(file);
  file = -1;
  if (closed != 0)
    return failure(errno);
  if (!aside.empty() && ::rename(aside.c_str(), target.c_str()) != 0)
    return failure(errno);
  forgetName(slot);
  aside.clear();
  int error = syncFolder(folderOf(target));
  return error != 0 ? failure(error) : Status();
}

Status renameFolder(const std::string &from, const std::string &to) {
  int error = ::rename(from.c_str(), to.c_str()) != 0 ? errno : 0;
  if (error == 0)
    error = syncFolder(folderOf(to));
  return error == 0
             ? Status()
             : Status::environment("cannot rename " + escaped(from) + " to " +
                                   escaped(to) + ": " + std::strerror(error));
}

Status tryToWrite(const std::string &path) {
  struct stat about = {};
  bool exists = false;
  const int error = lookAt(path, about, exists);
  if (error != 0)
    return Status::environment("cannot write " + escaped(path) + ": " +
                               std::strerror(error));
  if (exists && !S_ISREG(about.st_mode))
    return {};
  AsideFile trial; // dropped without a trace
  return trial.open(path);
}

Status writeFileAside(const std::string &path, const std::string &bytes) {
  AsideFile out;
  Status status = out.open(path);
  if (status.ok())
    status = out.append(bytes.data(), bytes.size());
  if (status.ok())
    status = out.commit();
  return status;
}

} // namespace sluice
