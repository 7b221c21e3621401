#include "ir/Diagnostics.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace sluice {

Diagnostic &Diagnostic::note(std::string text, SourceLocation where) {
  notes.push_back({Severity::Note, where, std::move(text), {}});
  return *this;
}

uint32_t Diagnostics::addSource(std::string name, std::string text) {
  Source source{std::move(name), std::move(text), {0}};
  for (size_t end = source.text.find('\n'); end != std::string::npos;
       end = source.text.find('\n', end + 1))
    source.lineStarts.push_back(static_cast<uint32_t>(end + 1));
  sources.push_back(std::move(source));
  return static_cast<uint32_t>(sources.size() - 1);
}

Diagnostic &Diagnostics::error(SourceLocation where, std::string message) {
  ++errors;
  return list.emplace_back(
      Diagnostic{Severity::Error, where, std::move(message), {}});
}

Diagnostic &Diagnostics::warning(SourceLocation where, std::string message) {
  return list.emplace_back(
      Diagnostic{Severity::Warning, where, std::move(message), {}});
}

Diagnostic &Diagnostics::lastError() {
  return *std::find_if(list.rbegin(), list.rend(), [](const Diagnostic &told) {
    return told.severity == Severity::Error;
  });
}

std::string_view Diagnostics::fileName(uint32_t file) const {
  return file < sources.size() ? std::string_view(sources[file].name)
                               : std::string_view("input");
}

std::string Diagnostics::render() const {
  std::vector<const Diagnostic *> sorted;
  for (const Diagnostic &diagnostic : list)
    sorted.push_back(&diagnostic);
  auto before = [](const Diagnostic *a, const Diagnostic *b) {
    SourceLocation x = a->location, y = b->location;
    return std::tie(x.file, x.line, x.column) <
           std::tie(y.file, y.line, y.column);
  };
  std::stable_sort(sorted.begin(), sorted.end(), before);
  std::string out;
  for (const Diagnostic *diagnostic : sorted)
    renderOne(*diagnostic, out);
  return out;
}

/// Whether a character changes how others are shown, or is not seen: marks of
/// direction, joiners and separators, spaces without width, tags.
static bool isInvisible(uint32_t character) {
  static constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
      {0x00ad, 0x00ad},  {0x034f, 0x034f}, {0x061c, 0x061c},
      {0x115f, 0x1160},  {0x17b4, 0x17b5}, {0x180b, 0x180f},
      {0x200b, 0x200f},  {0x2028, 0x202e}, {0x2060, 0x206f},
      {0x3164, 0x3164},  {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
      {0xffa0, 0xffa0},  {0xfff0, 0xfffb}, {0x1d173, 0x1d17a},
      {0xe0000, 0xe0fff}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [&](auto range) {
    return range.first <= character && character <= range.second;
  });
}

/// The character of a valid UTF-8 sequence.
static uint32_t decode(std::string_view sequence) {
  uint32_t first = static_cast<unsigned char>(sequence[0]);
  uint32_t character = first & (0x7fu >> sequence.size());
  for (char c : sequence.substr(1))
    character = character << 6 | (static_cast<unsigned char>(c) & 0x3fu);
  return character;
}

/// Length of the valid UTF-8 sequence at the front of `text`, 0 if there is
/// none. Characters that control or cannot be seen count as invalid.
static size_t printableLength(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80)
    return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length)
    return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
  bool c1Control = byte(0) == 0xc2 && byte(1) < 0xa0;
  bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) ||
                  (byte(0) == 0xf0 && byte(1) < 0x90);
  bool outside = (byte(0) == 0xed && byte(1) > 0x9f) ||
                 (byte(0) == 0xf4 && byte(1) > 0x8f);
  if (c1Control || overlong || outside)
    return 0;
  return isInvisible(decode(text.substr(0, length))) ? 0 : length;
}

std::string escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    if (size_t length = printableLength(text)) {
      out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    }
    auto byte = static_cast<unsigned char>(text[0]);
    out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    text.remove_prefix(1);
  }
  return out;
}

/// The first byte at or after `at` that begins a character, if it is near:
/// where `line` may be cut.
static size_t cutAfter(std::string_view line, size_t at) {
  size_t end = std::min(line.size(), at + 3);
  while (at < end && (static_cast<unsigned char>(line[at]) & 0xc0) == 0x80)
    ++at;
  return std::min(at, line.size());
}
/// The same, at or before `at`.
static size_t cutBefore(std::string_view line, size_t at) {
  if (at >= line.size())
    return line.size();
  for (size_t back = 0; back < 4 && back <= at; ++back)
    if ((static_cast<unsigned char>(line[at - back]) & 0xc0) != 0x80)
      return at - back;
  return at;
}

/// Appends the source line and a caret under byte `column` (1-based). Long
/// lines are cut to a window around the caret.
static void renderCaret(std::string_view line, uint32_t column,
                        std::string &out) {
  constexpr size_t kWidth = 160;
  size_t at = std::min<size_t>(column - 1, line.size());
  size_t begin = at > kWidth / 2 && line.size() > kWidth
                     ? std::min(cutAfter(line, at - kWidth / 2), at)
                     : 0;
  size_t end = std::max(cutBefore(line, begin + kWidth), at);
  std::string before = escaped(line.substr(begin, at - begin));
  std::string after = escaped(line.substr(at, end - at));
  size_t indent = 0;
  for (char c : before) // one column a character, not a byte
    indent += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  out += "  " + before + after + "\n  " + std::string(indent, ' ') + "^\n";
}

void Diagnostics::renderOne(const Diagnostic &diagnostic,
                            std::string &out) const {
  SourceLocation where = diagnostic.location;
  bool known = where.file < sources.size();
  if (diagnostic.severity != Severity::Note || where.line != 0) {
    out += escaped(fileName(where.file));
    if (where.line != 0)
      out +=
          ":" + std::to_string(where.line) + ":" + std::to_string(where.column);
    out += ": ";
  }
  switch (diagnostic.severity) {
  case Severity::Error:
    out += "error: ";
    break;
  case Severity::Warning:
    out += "warning: ";
    break;
  case Severity::Note:
    out += "note: ";
    break;
  }
  out += escaped(diagnostic.message) + "\n";
  if (known && where.line != 0 &&
      where.line <= sources[where.file].lineStarts.size()) {
    const Source &source = sources[where.file];
    std::string_view line =
        std::string_view(source.text).substr(source.lineStarts[where.line - 1]);
    line = line.substr(0, line.find('\n'));
    if (!line.empty() && line.back() == '\r')
      line.remove_suffix(1);
    renderCaret(line, std::max(where.column, 1u), out);
  }
  for (const Diagnostic &note : diagnostic.notes)
    renderOne(note, out);
}

} // namespace sluice
