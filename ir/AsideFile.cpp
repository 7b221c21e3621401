#include "ir/AsideFile.h"
#include "ir/Diagnostics.h"

#include <atomic>
#include <cerrno>
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

AsideFile::~AsideFile() {
  if (file >= 0)
    ::close(file);
  if (device >= 0)
    ::close(device);
  if (!aside.empty())
    ::unlink(aside.c_str());
}

Status AsideFile::failure(int error) const {
  return Status::environment("cannot write " + escaped(name) + ": " +
                             std::strerror(error));
}

Status AsideFile::open(const std::string &path) {
  name = path;
  target = path;
  struct stat about = {};
  bool exists = ::stat(path.c_str(), &about) == 0;
  if (exists && S_ISDIR(about.st_mode))
    return failure(EISDIR);
  if (exists && !S_ISREG(about.st_mode)) {
    device = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (device < 0)
      return failure(errno);
    file = ::memfd_create("sluice", MFD_CLOEXEC);
    return file < 0 ? failure(errno) : Status();
  }
  if (exists && ::access(path.c_str(), W_OK) != 0)
    return failure(errno);
  if (char *real = exists ? ::realpath(path.c_str(), nullptr) : nullptr) {
    target = real;
    std::free(real);
  }
  return openAside(about.st_mode & 07777, exists);
}

Status AsideFile::openAside(uint32_t mode, bool exists) {
  static std::atomic<unsigned> counter = 0;
  std::string stem = folderOf(target);
  if (stem.back() != '/')
    stem += '/';
  stem += ".sluice-" + std::to_string(::getpid()) + "-";
  for (unsigned tries = 0; tries < 1000; ++tries) {
    std::string candidate = stem + std::to_string(counter++);
    file =
        ::open(candidate.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
      aside = candidate;
      break;
    }
    if (errno != EEXIST)
      return failure(errno);
  }
  if (file < 0)
    return failure(EEXIST);
  if (exists && ::fchmod(file, mode) != 0)
    return failure(errno);
  return {};
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
  int closed = ::close(file);
  file = -1;
  if (closed != 0)
    return failure(errno);
  if (::rename(aside.c_str(), target.c_str()) != 0)
    return failure(errno);
  aside.clear();
  int error = syncFolder(folderOf(target));
  return error != 0 ? failure(error) : Status();
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
