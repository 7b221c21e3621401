// The file, little-endian throughout:
//
//   0   8  magic "SLUICEPL"
//   8   2  major version        10  2  minor version
//   12  4  number of sections n = 1 + ranks
//   16     n entries: 8 offset, 8 size, 16 hash of the section
//   16+32n 16  content hash: of all bytes before it
//   32+32n     the sections, one after the other to the end of the file
//
// Sizes are multiples of 8, hashes XXH3-128 in canonical form. Every byte is
// under a hash but the content hash, which is compared. The major version must
// be this program's, the minor not newer.

#include "ir/PlanFile.h"
#include "ir/AsideFile.h"
#include "ir/ContentHash.h"
#include "ir/Diagnostics.h"
#include "ir/PlanSections.h"

#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice {

static constexpr std::string_view kMagic = "SLUICEPL";
static constexpr size_t kPreambleBytes = 16;
static constexpr size_t kEntryBytes = 32;
static constexpr size_t kHashBytes = sizeof(ContentHash);

static void put(std::string &out, uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i)
    out += static_cast<char>(value >> (8 * i) & 0xff);
}

static uint64_t get(const uint8_t *from, unsigned bytes) {
  uint64_t value = 0;
  for (unsigned i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(from[i]) << (8 * i);
  return value;
}

namespace {
struct Section {
  uint64_t offset;
  uint64_t size;
  ContentHash hash;
};
} // namespace

/// Bytes in front of the first section.
static uint64_t frontBytes(uint64_t sections) {
  return kPreambleBytes + sections * kEntryBytes + kHashBytes;
}

bool isPlanFile(std::string_view bytes) { return bytes.starts_with(kMagic); }

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static std::string frontOf(const std::vector<Section> &sections) {
  std::string front(kMagic);
  put(front, kPlanFileMajor, 2);
  put(front, kPlanFileMinor, 2);
  put(front, sections.size(), 4);
  for (const Section &section : sections) {
    put(front, section.offset, 8);
    put(front, section.size, 8);
    front.append(section.hash.begin(), section.hash.end());
  }
  ContentHash content = contentHash(front.data(), front.size());
  return front.append(content.begin(), content.end());
}

/// The bound of section `index`: 0 is the header, then rank after rank.
static uint64_t sectionBound(const Plan &plan, size_t index) {
  return index == 0 ? planfile::headerBound(plan)
                    : planfile::rankBound(plan.ranks[index - 1]);
}

static Status checkBounds(const Plan &plan, uint64_t &largest) {
  largest = 0;
  for (size_t i = 0; i <= plan.ranks.size(); ++i) {
    uint64_t bound = sectionBound(plan, i);
    if (bound > planfile::kMaxSectionBytes)
      return Status::input(
          (i == 0 ? "the header" : "rank " + std::to_string(i - 1)) +
          " takes up to " + std::to_string(bound) +
          " bytes in a plan file, over the limit of " +
          std::to_string(planfile::kMaxSectionBytes));
    largest = std::max(largest, bound);
  }
  return {};
}

/// Makes one section after the other and hands them to `take`.
template <typename Take>
static Status makeSections(const Plan &plan, uint64_t largest,
                           std::vector<Section> &sections, Take &&take) {
  flatbuffers::FlatBufferBuilder builder(largest);
  uint64_t offset = frontBytes(plan.ranks.size() + 1);
  for (size_t i = 0; i <= plan.ranks.size(); ++i) {
    builder.Clear();
    if (i == 0)
      planfile::encodeHeader(plan, builder);
    else
      planfile::encodeRank(plan.ranks[i - 1], builder);
    const uint8_t *bytes = builder.GetBufferPointer();
    uint64_t size = builder.GetSize();
    Status status = take(bytes, size);
    if (!status.ok())
      return status;
    sections.push_back({offset, size, contentHash(bytes, size)});
    offset += size;
  }
  return {};
}

static std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15})
      text += "0123456789abcdef"[digit];
  return text;
}

Status planHash(const Plan &plan, std::string &hash) {
  uint64_t largest = 0;
  std::vector<Section> sections;
  Status status = checkBounds(plan, largest);
  if (status.ok())
    status = makeSections(plan, largest, sections,
                          [](const void *, size_t) { return Status(); });
  if (status.ok()) {
    const std::string front = frontOf(sections);
    hash =
        hexadecimal(std::string_view(front).substr(front.size() - kHashBytes));
  }
  return status;
}

Status writePlanFile(const Plan &plan, const std::string &path) {
  uint64_t largest = 0;
  Status status = checkBounds(plan, largest);
  AsideFile out;
  if (status.ok())
    status = out.open(path);
  std::string front(frontBytes(plan.ranks.size() + 1), '\0');
  if (status.ok())
    status = out.append(front.data(), front.size());
  std::vector<Section> sections;
  if (status.ok())
    status = makeSections(plan, largest, sections,
                          [&out](const void *bytes, size_t size) {
                            return out.append(bytes, size);
                          });
  if (!status.ok())
    return status;
  front = frontOf(sections);
  status = out.overwrite(0, front.data(), front.size());
  if (status.ok())
    status = out.commit();
  return status;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// An open plan file whose table has been checked.
class PlanFileReader {
public:
  explicit PlanFileReader(const std::string &name,
                          const std::string &nameShown = "")
      : path(name), shown(nameShown.empty() ? name : nameShown) {}
  PlanFileReader(const PlanFileReader &) = delete;
  PlanFileReader &operator=(const PlanFileReader &) = delete;
  ~PlanFileReader() {
    if (file >= 0)
      ::close(file);
  }

  Status open();
  Status readHeader(Plan &plan);
  Status readRank(Plan &plan, Id rank);

  const std::string &hashText() const { return hash; }

  Status refuse(const std::string &reason) const {
    return Status::input(escaped(shown) + ": " + reason);
  }

private:
  Status readBytes(uint64_t offset, void *to, size_t size) const;
  Status readFront();
  Status checkVersion(const uint8_t *preamble) const;
  Status checkSections() const;
  Status readSection(size_t index, std::span<const uint8_t> &bytes);

  const std::string &path;
  const std::string shown; ///< what messages call it
  int file = -1;
  uint64_t fileSize = 0;
  std::vector<Section> sections;
  std::string hash;                  ///< of the content, in hexadecimal digits
  std::unique_ptr<uint8_t[]> buffer; ///< as large as the largest section so far
  uint64_t bufferSize = 0;
};

} // namespace

Status PlanFileReader::open() {
  file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return Status::input("cannot open " + escaped(shown) + ": " +
                         std::strerror(errno));
  struct stat about = {};
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
    return refuse("is not a regular file");
  fileSize = static_cast<uint64_t>(about.st_size);
  Status status = readFront();
  return status.ok() ? checkSections() : status;
}

/// Reads, never maps: a file that shrinks meanwhile is an error, not a signal.
Status PlanFileReader::readBytes(uint64_t offset, void *to, size_t size) const {
  auto *bytes = static_cast<char *>(to);
  while (size != 0) {
    ssize_t got = ::pread(file, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return Status::environment("cannot read " + escaped(shown) + ": " +
                                 std::strerror(errno));
    if (got == 0)
      return refuse("plan file is truncated at " + std::to_string(offset) +
                    " bytes");
    bytes += got;
    size -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Status PlanFileReader::checkVersion(const uint8_t *preamble) const {
  uint64_t major = get(preamble + 8, 2), minor = get(preamble + 10, 2);
  if (major == kPlanFileMajor && minor <= kPlanFileMinor)
    return {};
  return refuse("plan file has version " + std::to_string(major) + "." +
                std::to_string(minor) + ", this program reads " +
                std::to_string(kPlanFileMajor) + "." +
                std::to_string(kPlanFileMinor));
}

/// Preamble and table, up to the content hash.
Status PlanFileReader::readFront() {
  uint8_t preamble[kPreambleBytes] = {};
  Status status =
      readBytes(0, preamble, std::min<uint64_t>(fileSize, kPreambleBytes));
  if (!status.ok())
    return status;
  if (!isPlanFile({reinterpret_cast<char *>(preamble), kPreambleBytes}))
    return refuse("is not a plan file");
  if (fileSize < kPreambleBytes)
    return refuse("plan file is truncated at " + std::to_string(fileSize) +
                  " bytes");
  status = checkVersion(preamble);
  if (!status.ok())
    return status;

  uint64_t count = get(preamble + 12, 4);
  uint64_t front = frontBytes(count);
  if (front > fileSize)
    return refuse("plan file is truncated at " + std::to_string(fileSize) +
                  " bytes, its table of " + std::to_string(count) +
                  " sections ends at " + std::to_string(front));
  std::vector<uint8_t> bytes(front);
  status = readBytes(0, bytes.data(), front);
  if (!status.ok())
    return status;
  const ContentHash found = contentHash(bytes.data(), front - kHashBytes);
  if (!std::equal(found.begin(), found.end(), bytes.end() - kHashBytes))
    return refuse("plan file is altered: its table does not match its content "
                  "hash");
  hash =
      hexadecimal({reinterpret_cast<const char *>(found.data()), found.size()});
  sections.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint8_t *entry = bytes.data() + kPreambleBytes + i * kEntryBytes;
    sections[i] = {get(entry, 8), get(entry + 8, 8), {}};
    std::copy_n(entry + 16, kHashBytes, sections[i].hash.begin());
  }
  return {};
}

Status PlanFileReader::checkSections() const {
  if (sections.size() < 2)
    return refuse("plan file has no ranks");
  uint64_t end = frontBytes(sections.size());
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section &section = sections[i];
    if (section.offset != end || section.size % 8 != 0 ||
        section.size > planfile::kMaxSectionBytes)
      return refuse("plan file is malformed: section " + std::to_string(i) +
                    " takes " + std::to_string(section.size) +
                    " bytes at offset " + std::to_string(section.offset));
    end += section.size;
  }
  if (fileSize < end)
    return refuse("plan file is truncated at " + std::to_string(fileSize) +
                  " of " + std::to_string(end) + " bytes");
  if (fileSize > end)
    return refuse("plan file has " + std::to_string(fileSize - end) +
                  " bytes after its end");
  return {};
}

Status PlanFileReader::readSection(size_t index,
                                   std::span<const uint8_t> &bytes) {
  const Section &section = sections[index];
  if (section.size > bufferSize) {
    buffer = std::make_unique_for_overwrite<uint8_t[]>(section.size);
    bufferSize = section.size;
  }
  Status status = readBytes(section.offset, buffer.get(), section.size);
  if (!status.ok())
    return status;
  if (contentHash(buffer.get(), section.size) != section.hash)
    return refuse("plan file is altered: " +
                  (index == 0
                       ? "its header"
                       : "the section of rank " + std::to_string(index - 1)) +
                  " does not match its hash");
  bytes = {buffer.get(), section.size};
  return {};
}

Status PlanFileReader::readHeader(Plan &plan) {
  std::span<const uint8_t> bytes;
  Status status = readSection(0, bytes);
  if (!status.ok())
    return status;
  if (!planfile::decodeHeader(bytes, plan))
    return refuse("plan file is malformed: its header is not one");
  plan.ranks.resize(sections.size() - 1);
  status = checkHeader(plan);
  return status.ok() ? status
                     : refuse("plan file is malformed: " + status.message());
}

Status PlanFileReader::readRank(Plan &plan, Id rank) {
  std::span<const uint8_t> bytes;
  Status status = readSection(size_t(rank) + 1, bytes);
  if (!status.ok())
    return status;
  if (!planfile::decodeRank(bytes, plan.ranks[rank]))
    return refuse("plan file is malformed: the section of rank " +
                  std::to_string(rank) + " is not one");
  status = checkStructure(plan, rank);
  return status.ok() ? status
                     : refuse("plan file is malformed: " + status.message());
}

Status readPlanFile(const std::string &path, Plan &plan,
                    const std::string &shown) {
  PlanFileReader reader(path, shown);
  Plan result;
  Status status = reader.open();
  if (status.ok())
    status = reader.readHeader(result);
  for (Id rank = 0; status.ok() && rank < result.ranks.size(); ++rank)
    status = reader.readRank(result, rank);
  if (status.ok())
    plan = std::move(result);
  return status;
}

Status readPlanFileHeader(const std::string &path, Plan &plan) {
  PlanFileReader reader(path);
  Plan result;
  Status status = reader.open();
  if (status.ok())
    status = reader.readHeader(result);
  if (status.ok())
    plan = std::move(result);
  return status;
}

Status planFileHash(const std::string &path, std::string &hash) {
  PlanFileReader reader(path);
  Status status = reader.open();
  if (status.ok())
    hash = reader.hashText();
  return status;
}

Status readPlanFileRank(const std::string &path, Id rank, Plan &plan) {
  PlanFileReader reader(path);
  Plan result;
  Status status = reader.open();
  if (status.ok())
    status = reader.readHeader(result);
  if (status.ok() && rank >= result.ranks.size())
    status =
        reader.refuse("plan is for " + std::to_string(result.ranks.size()) +
                      " ranks, there is no rank " + std::to_string(rank));
  if (status.ok())
    status = reader.readRank(result, rank);
  if (status.ok())
    plan = std::move(result);
  return status;
}

} // namespace sluice
