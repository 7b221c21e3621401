#include "tools/sluice/ParseFlags.h"

#include "ir/Diagnostics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Path.h"

#include <optional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace cl = llvm::cl;

namespace sluice {

/// Our sentence for what LLVM says in `line`; empty if there is none of ours.
static std::string ownSentence(llvm::StringRef line, llvm::StringRef command) {
  std::string file = "FILE ('-': standard input)";
  if (line.contains("ot enough positional") || line.contains("ust specify at "))
    return "FILE is missing: sluice " + command.str() + " [options] " + file;
  if (line.contains("oo many positional"))
    return "more than one FILE: sluice " + command.str() + " takes one";
  if (!line.consume_front("for the "))
    return "";
  auto [flag, fault] = line.split(" option: ");
  if (flag.starts_with("--") && flag.size() == 3)
    flag = flag.drop_front();
  if (fault.contains("must be specified"))
    return flag.str() + " is missing";
  if (fault.contains("requires a value"))
    return flag.str() + " has no value";
  if (fault.contains("does not allow a value") ||
      fault.contains("value for boolean"))
    return flag.str() + " takes no value";
  return "";
}

/// LLVM's messages as ours: `error: lower-case sentence`, without the name of
/// the program and its own advice.
static std::string inHouseForm(llvm::StringRef text,
                               llvm::ArrayRef<const char *> arguments) {
  llvm::StringRef command = arguments[1];
  std::string prefix = (llvm::sys::path::filename(arguments[0]) + ": ").str();
  std::string out;
  for (llvm::StringRef line : llvm::split(text.rtrim('\n'), '\n')) {
    line.consume_front(prefix);
    std::string sentence = ownSentence(line, command);
    line = line.take_front(line.find("  Try: ")).rtrim("!. ");
    line = line.take_front(line.find("See: ")).rtrim("!. ");
    if (line.empty() || line.starts_with("Did you mean") ||
        line.starts_with("Can specify at most"))
      continue;
    if (sentence.empty()) {
      sentence = escaped(line);
      sentence[0] = llvm::toLower(sentence[0]);
    }
    sentence = "error: " + sentence + "\n";
    if (!llvm::StringRef(out).ends_with(sentence)) // some come in two wordings
      out += sentence;
  }
  return out;
}

namespace {
/// Takes what is written to standard error while it lives: LLVM's library tells
/// some faults there, whatever stream it was given.
class CapturedErrors {
public:
  CapturedErrors()
      : before(::dup(STDERR_FILENO)),
        file(::memfd_create("errors", MFD_CLOEXEC)) {
    if (before >= 0 && file >= 0)
      ::dup2(file, STDERR_FILENO);
  }
  CapturedErrors(const CapturedErrors &) = delete;
  CapturedErrors &operator=(const CapturedErrors &) = delete;
  ~CapturedErrors() {
    restore();
    ::close(file);
  }
  /// Ends the capture; returns what was taken.
  std::string take() {
    restore();
    std::string text;
    char block[4096];
    for (off_t at = 0;;) {
      ssize_t got = ::pread(file, block, sizeof(block), at);
      if (got <= 0)
        return text;
      text.append(block, static_cast<size_t>(got));
      at += got;
    }
  }

private:
  void restore() {
    if (before >= 0 && file >= 0)
      ::dup2(before, STDERR_FILENO);
    ::close(before);
    before = -1;
  }
  int before, file;
};
} // namespace

/// Whether LLVM's library ends the process for `argument`: --help and its like.
static bool endsProcess(llvm::StringRef argument) {
  llvm::StringRef name = argument.ltrim('-');
  return name.size() != argument.size() &&
         (name.starts_with("help") || name == "h" || name == "version");
}

bool parseFlags(llvm::ArrayRef<const char *> arguments,
                llvm::raw_ostream &errors) {
  std::optional<CapturedErrors> captured;
  if (llvm::none_of(arguments, endsProcess))
    captured.emplace();
  std::string text;
  llvm::raw_string_ostream out(text);
  bool ok = cl::ParseCommandLineOptions(static_cast<int>(arguments.size()),
                                        arguments.data(), "", &out);
  if (captured)
    text = captured->take() + text;
  errors << inHouseForm(text, arguments);
  return ok;
}

} // namespace sluice
