#include "runtime/CheckpointFiles.h"

#include "ir/AsideFile.h"
#include "ir/Diagnostics.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice::runtime {

static constexpr std::string_view kMagic = "SLUICECP";
static constexpr uint32_t kVersion = 1;
static constexpr uint64_t kHashBytes = sizeof(ContentHash);
/// More ranges than any optimizer keeps.
static constexpr uint32_t kMaxRanges = 1 + SLUICE_MAX_STATES;

std::string partPath(const std::string &folder, uint32_t part) {
  return folder + "/part-" + std::to_string(part);
}

static std::string listPath(const std::string &folder) {
  return folder + "/checkpoint";
}

//===----------------------------------------------------------------------===//
// Writing a part
//===----------------------------------------------------------------------===//

namespace {
/// Appends to a file, and to its hash.
class PartWriter {
public:
  Status open(const std::string &path) { return file.open(path); }
  void bytes(const void *data, uint64_t size) {
    hasher.take(data, size);
    if (status.ok())
      status = file.append(data, size);
  }
  void number(uint64_t value, unsigned width) {
    unsigned char out[8];
    for (unsigned i = 0; i < width; ++i)
      out[i] = static_cast<unsigned char>(value >> (8 * i));
    bytes(out, width);
  }
  void range(const void *data, uint64_t size) {
    number(size, 8);
    bytes(data, size);
  }
  Status end() {
    const ContentHash hash = hasher.hash();
    if (status.ok())
      status = file.append(hash.data(), hash.size());
    return status.ok() ? file.commit() : status;
  }

private:
  AsideFile file;
  ContentHasher hasher;
  Status status;
};
} // namespace

Status writePart(const std::string &path,
                 std::span<const sluice_tensor> tensors) {
  PartWriter out;
  if (Status s = out.open(path); !s.ok())
    return s;
  out.bytes(kMagic.data(), kMagic.size());
  out.number(kVersion, 4);
  out.number(tensors.size(), 4);
  for (const sluice_tensor &tensor : tensors) {
    const size_t length = std::strlen(tensor.name);
    out.number(length, 4);
    out.bytes(tensor.name, length);
    out.number(1 + uint64_t(tensor.state_count), 4);
    out.range(tensor.data, tensor.bytes);
    for (uint32_t i = 0; i < tensor.state_count; ++i)
      out.range(tensor.states[i].data, tensor.states[i].bytes);
  }
  return out.end();
}

//===----------------------------------------------------------------------===//
// Reading a part
//===----------------------------------------------------------------------===//

namespace {
/// A file that is read at places.
class ReadFile {
public:
  explicit ReadFile(const std::string &name) : path(name) {}
  ReadFile(const ReadFile &) = delete;
  ReadFile &operator=(const ReadFile &) = delete;
  ~ReadFile() {
    if (file >= 0)
      ::close(file);
  }

  Status open() {
    file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about = {};
    if (file < 0 || ::fstat(file, &about) != 0)
      return Status::environment("cannot read " + escaped(path) + ": " +
                                 std::strerror(errno));
    if (!S_ISREG(about.st_mode))
      return refuse("is not a regular file");
    length = static_cast<uint64_t>(about.st_size);
    return {};
  }
  uint64_t size() const { return length; }
  Status refuse(const std::string &reason) const {
    return Status::input(escaped(path) + " " + reason);
  }

  Status read(uint64_t offset, void *to, uint64_t bytes) const {
    auto *target = static_cast<char *>(to);
    while (bytes != 0) {
      const ssize_t got =
          ::pread(file, target, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR)
        continue;
      if (got < 0)
        return Status::environment("cannot read " + escaped(path) + ": " +
                                   std::strerror(errno));
      if (got == 0)
        return refuse("ends at " + std::to_string(offset) + " bytes");
      target += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
    return {};
  }

private:
  const std::string &path;
  int file = -1;
  uint64_t length = 0;
};

/// Reads a part from its beginning.
class PartReader {
public:
  explicit PartReader(const std::string &path) : file(path) {}

  Status open() {
    Status status = file.open();
    if (status.ok() && file.size() < kMagic.size() + 8 + kHashBytes)
      return file.refuse("is no part of a checkpoint");
    end = file.size() - kHashBytes;
    return status;
  }
  /// 0 past the end, which `fits` has told.
  Status number(uint64_t &value, unsigned width) {
    unsigned char in[8] = {};
    value = 0;
    Status status = take(width);
    if (status.ok())
      status = file.read(at - width, in, width);
    for (unsigned i = 0; i < width; ++i)
      value |= static_cast<uint64_t>(in[i]) << (8 * i);
    return status;
  }
  Status text(std::string &to, uint64_t length) {
    Status status = take(length);
    if (!status.ok())
      return status;
    to.resize(length);
    return file.read(at - length, to.data(), length);
  }
  /// Passes over so many bytes.
  Status take(uint64_t bytes) {
    if (bytes > end - at)
      return file.refuse("is torn: " + std::to_string(bytes) +
                         " bytes at byte " + std::to_string(at) + " of " +
                         std::to_string(end));
    at += bytes;
    return {};
  }
  uint64_t place() const { return at; }
  bool atEnd() const { return at == end; }
  Status refuse(const std::string &reason) const { return file.refuse(reason); }

private:
  ReadFile file;
  uint64_t at = 0, end = 0;
};
} // namespace

Status readRange(const std::string &path, uint64_t offset, void *to,
                 uint64_t bytes) {
  ReadFile file(path);
  Status status = file.open();
  return status.ok() ? file.read(offset, to, bytes) : status;
}

Status readPartHash(const std::string &path, ContentHash &hash) {
  ReadFile file(path);
  if (Status s = file.open(); !s.ok())
    return s;
  if (file.size() < kHashBytes)
    return file.refuse("is no part of a checkpoint");
  return file.read(file.size() - kHashBytes, hash.data(), kHashBytes);
}

Status checkPart(const std::string &path, const ContentHash &hash) {
  ReadFile file(path);
  if (Status s = file.open(); !s.ok())
    return s;
  if (file.size() < kHashBytes)
    return file.refuse("is no part of a checkpoint");
  ContentHasher hasher;
  std::vector<char> block(1 << 20);
  const uint64_t end = file.size() - kHashBytes;
  for (uint64_t at = 0; at < end;) {
    const uint64_t bytes = std::min<uint64_t>(block.size(), end - at);
    if (Status s = file.read(at, block.data(), bytes); !s.ok())
      return s;
    hasher.take(block.data(), bytes);
    at += bytes;
  }
  ContentHash own;
  if (Status s = file.read(end, own.data(), kHashBytes); !s.ok())
    return s;
  return own == hash && hasher.hash() == hash
             ? Status()
             : file.refuse("does not match its hash");
}

static Status readEntry(PartReader &in, PartEntry &entry) {
  uint64_t length = 0, ranges = 0;
  if (Status s = in.number(length, 4); !s.ok())
    return s;
  if (Status s = in.text(entry.name, length); !s.ok())
    return s;
  if (Status s = in.number(ranges, 4); !s.ok())
    return s;
  if (ranges == 0 || ranges > kMaxRanges)
    return in.refuse("is malformed: a tensor has " + std::to_string(ranges) +
                     " ranges");
  for (uint64_t i = 0; i < ranges; ++i) {
    uint64_t bytes = 0;
    if (Status s = in.number(bytes, 8); !s.ok())
      return s;
    entry.ranges.emplace_back(in.place(), bytes);
    if (Status s = in.take(bytes); !s.ok())
      return s;
  }
  return {};
}

Status readPartList(const std::string &path, std::vector<PartEntry> &entries) {
  PartReader in(path);
  std::string magic;
  uint64_t version = 0, count = 0;
  if (Status s = in.open(); !s.ok())
    return s;
  if (Status s = in.text(magic, kMagic.size()); !s.ok())
    return s;
  if (Status s = in.number(version, 4); !s.ok())
    return s;
  if (magic != kMagic || version != kVersion)
    return in.refuse("is no part of a checkpoint of version " +
                     std::to_string(kVersion));
  if (Status s = in.number(count, 4); !s.ok())
    return s;
  for (uint64_t i = 0; i < count; ++i)
    if (Status s = readEntry(in, entries.emplace_back()); !s.ok())
      return s;
  return in.atEnd() ? Status() : in.refuse("has bytes after its tensors");
}

//===----------------------------------------------------------------------===//
// The list
//===----------------------------------------------------------------------===//

static std::string textOf(const CheckpointList &list) {
  std::string text = "sluice checkpoint " + std::to_string(kVersion) +
                     "\nsteps " + std::to_string(list.steps) + "\nparts " +
                     std::to_string(list.parts.size()) + "\n";
  for (const ContentHash &hash : list.parts) {
    for (unsigned char byte : hash) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    text += '\n';
  }
  return text;
}

Status writeList(const std::string &folder, const CheckpointList &list) {
  return writeFileAside(listPath(folder), textOf(list));
}

/// Takes a number of base `base` off the front.
template <typename T>
static bool takeNumber(std::string_view &text, T &value, int base) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, base);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc();
}

static bool takeWord(std::string_view &text, std::string_view word) {
  if (!text.starts_with(word))
    return false;
  text.remove_prefix(word.size());
  return true;
}

static bool takeHash(std::string_view &text, ContentHash &hash) {
  for (unsigned char &byte : hash) {
    std::string_view digits = text.substr(0, 2);
    if (digits.size() != 2 || !takeNumber(digits, byte, 16))
      return false;
    text.remove_prefix(2);
  }
  return takeWord(text, "\n");
}

/// Whatever it took from the text, it must be what the list would be written
/// as.
static CheckpointList listFrom(std::string_view text) {
  CheckpointList list;
  size_t count = 0;
  if (!takeWord(text, "sluice checkpoint ") ||
      !takeWord(text, std::to_string(kVersion)) ||
      !takeWord(text, "\nsteps ") || !takeNumber(text, list.steps, 10) ||
      !takeWord(text, "\nparts ") || !takeNumber(text, count, 10) ||
      !takeWord(text, "\n"))
    return list;
  for (ContentHash hash; takeHash(text, hash);)
    list.parts.push_back(hash);
  return list;
}

Status readList(const std::string &folder, CheckpointList &list) {
  constexpr uint64_t kMostBytes = 64 << 20;
  const std::string path = listPath(folder);
  ReadFile file(path);
  if (Status s = file.open(); !s.ok())
    return s;
  if (file.size() > kMostBytes)
    return file.refuse("is too long to be a list of parts");
  std::string text(file.size(), '\0');
  if (Status s = file.read(0, text.data(), text.size()); !s.ok())
    return s;
  list = listFrom(text);
  return !list.parts.empty() && textOf(list) == text
             ? Status()
             : file.refuse("is not the list of a checkpoint's parts");
}

} // namespace sluice::runtime
