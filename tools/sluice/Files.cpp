#include "tools/sluice/Files.h"

#include "ir/AsideFile.h"
#include "ir/Ops.h"
#include "ir/PlanFile.h"
#include "ir/Words.h"
#include "ir/text/Actions.h"
#include "ir/text/Text.h"
#include "ir/text/TextFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <optional>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace sluice {

/// Whether `word` begins as a cell of a schedule CSV: a stage, a kind of
/// operation, in whatever letters, and for some a microbatch. Whether it is one
/// is for the reader.
static bool isCsvCell(llvm::StringRef word) {
  word.consume_front("(");
  std::string name = word.upper();
  size_t type = name.find_first_not_of("0123456789");
  if (type == 0 || type == std::string::npos)
    return false;
  size_t number = name.find_first_of("0123456789", type);
  std::string_view kind(name.data() + type,
                        std::min(number, name.size()) - type);
  if (number == std::string::npos)
    return isActionType(kind, false);
  if (name == "1F1B" || // a schedule's name
      llvm::any_of(name, [](char c) {
        return !llvm::isAlnum(c) && !llvm::StringRef("_-;)(").contains(c);
      }))
    return false;
  return isActionType(kind, true);
}

/// Whether a line begins with a key of YAML, which a row never does.
static bool hasKey(llvm::StringRef line) {
  llvm::StringRef rest = line.ltrim("abcdefghijklmnopqrstuvwxyz_");
  return rest.size() != line.size() && rest.starts_with(":");
}

/// Whether any cell is one of a schedule CSV, in a text without keys.
static bool looksLikeCsv(llvm::StringRef text) {
  text.consume_front("\xef\xbb\xbf"); // a byte order mark
  for (llvm::StringRef rest = text; !rest.empty();) {
    auto [line, after] = rest.split('\n');
    if (hasKey(line))
      return false;
    rest = after;
  }
  while (!text.empty()) {
    size_t end = std::min(text.find_first_of(", \t\"\r\n"), text.size());
    if (isCsvCell(text.take_front(end)))
      return true;
    text = text.drop_front(std::min(end + 1, text.size()));
  }
  return false;
}

static InputKind kindOf(llvm::StringRef name, llvm::StringRef text) {
  if (isPlanFile(text))
    return InputKind::Plan;
  if (isIrText(text))
    return InputKind::Ir;
  return name.ends_with(".csv") || looksLikeCsv(text) ? InputKind::Csv
                                                      : InputKind::Spec;
}

/// Whether the file `name` begins as a plan does; false if it cannot be read.
static bool beginsAsPlan(const std::string &name) {
  auto beginning = llvm::MemoryBuffer::getFileSlice(name, 64, 0);
  return beginning && isPlanFile((*beginning)->getBuffer());
}

Status readInput(const std::string &name, Input &input) {
  input.name = name;
  struct stat about = {};
  bool isThere = name != "-" && ::stat(name.c_str(), &about) == 0;
  // A pipe can be opened once.
  if (isThere && S_ISREG(about.st_mode) && beginsAsPlan(name)) {
    input.kind = InputKind::Plan;
    return Status();
  }
  Status status = name == "-" ? readStandardInput(input.text)
                              : readTextFile(name, input.text);
  if (!status.ok())
    return status;
  input.kind = kindOf(name, input.text);
  return Status();
}

Status writeOutput(const std::string &path,
                   llvm::function_ref<void(llvm::raw_ostream &)> write) {
  if (path.empty() || path == "-") {
    write(llvm::outs());
    llvm::outs().flush();
    if (std::error_code error = llvm::outs().error()) {
      llvm::outs().clear_error();
      return Status::environment("cannot write standard output: " +
                                 error.message());
    }
    return Status();
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  write(out);
  return writeFileAside(path, text);
}

namespace {
/// What tells one file from another: of a file that is not there yet, the
/// folder and the name.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  std::string leaf;
  bool operator==(const FileId &) const = default;
};
} // namespace

/// None for what is no file of its own: a device, a pipe, standard output.
static std::optional<FileId> fileId(const std::string &path) {
  struct stat about = {};
  if (::stat(path.c_str(), &about) == 0)
    return S_ISREG(about.st_mode)
               ? std::optional(FileId{about.st_dev, about.st_ino, ""})
               : std::nullopt;
  std::string end = followLinks(path);
  std::string folder = llvm::sys::path::parent_path(end).str();
  if (::stat(folder.empty() ? "." : folder.c_str(), &about) != 0)
    return std::nullopt;
  return FileId{about.st_dev, about.st_ino,
                llvm::sys::path::filename(end).str()};
}

Status checkPaths(llvm::ArrayRef<NamedPath> inputs,
                  llvm::ArrayRef<NamedPath> outputs) {
  std::vector<std::pair<FileId, const NamedPath *>> read, written;
  for (const NamedPath &input : inputs)
    if (auto id = fileId(input.path == "-" ? "/dev/stdin" : input.path))
      read.emplace_back(*id, &input);
  auto find = [](const auto &files, const FileId &id) -> const NamedPath * {
    for (const auto &[other, named] : files)
      if (other == id)
        return named;
    return nullptr;
  };
  for (const NamedPath &output : outputs) {
    std::optional<FileId> id = fileId(output.path);
    if (output.path.empty() || output.path == "-" || !id)
      continue;
    if (const NamedPath *input = find(read, *id))
      return Status::usage(escaped(output.shown) + " names " + input->shown +
                           ", which would be lost");
    if (const NamedPath *other = find(written, *id))
      return Status::usage(escaped(other->shown) + " and " +
                           escaped(output.shown) + " name one file");
    written.emplace_back(*id, &output);
  }
  for (const NamedPath &output : outputs)
    if (!output.path.empty() && output.path != "-")
      if (Status status = tryToWrite(output.path); !status.ok())
        return status;
  return Status();
}

int fail(const Status &status) {
  llvm::errs() << "error: " << status.message() << '\n';
  return static_cast<int>(status.fault());
}

} // namespace sluice
