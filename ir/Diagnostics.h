//===- ir/Diagnostics.h - Faults of an input, with their place -----------===//
//
// What a user did wrong is told as `file:line:col: error: sentence`, the source
// line and a caret. A library collects; only a tool prints.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_DIAGNOSTICS_H
#define SLUICE_IR_DIAGNOSTICS_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// A place in one of the sources of a Diagnostics: 1-based line and column
/// (in bytes); line 0 means "the file as a whole".
struct SourceLocation {
  uint32_t file = 0;
  uint32_t line = 0;
  uint32_t column = 0;
  bool operator==(const SourceLocation &) const = default;
};

enum class Severity : uint8_t { Error, Warning, Note };

struct Diagnostic {
  Severity severity;
  SourceLocation location;
  std::string message; ///< lower-case sentence with the numbers, no stop
  std::vector<Diagnostic> notes;

  /// Hangs a note on this diagnostic (what would be accepted, where the other
  /// definition is); returns *this, so that notes chain.
  Diagnostic &note(std::string text, SourceLocation where = {});
};

class Diagnostics {
public:
  /// Adds a source, so that its lines can be shown; returns its file number.
  uint32_t addSource(std::string name, std::string text);

  Diagnostic &error(SourceLocation where, std::string message);
  Diagnostic &warning(SourceLocation where, std::string message);

  bool hasErrors() const { return errors != 0; }
  unsigned errorCount() const { return errors; }
  const std::vector<Diagnostic> &all() const { return list; }
  /// The error that was told last, for further notes; there must be one.
  Diagnostic &lastError();
  std::string_view fileName(uint32_t file) const;

  /// Everything as text, sorted by place where both have one (stable), bytes
  /// that do not print escaped, each with its source line and caret.
  std::string render() const;

private:
  struct Source {
    std::string name;
    std::string text;
    std::vector<uint32_t> lineStarts;
  };
  void renderOne(const Diagnostic &diagnostic, std::string &out) const;

  std::vector<Source> sources;
  std::vector<Diagnostic> list;
  unsigned errors = 0;
};

/// `text` with every byte that does not print written as \xHH (valid UTF-8
/// stays); used for whatever comes from an input.
std::string escaped(std::string_view text);

} // namespace sluice

#endif // SLUICE_IR_DIAGNOSTICS_H
