#include "ir/text/Lexer.h"

#include "llvm/ADT/StringExtras.h"

namespace sluice::text {

/// After so many faults the rest of a text is not read.
static constexpr unsigned kMaxErrors = 1000;

static bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Whether `text[i]` belongs to a word; the '-' of an arrow does not.
static bool isWordCharacter(llvm::StringRef text, size_t i) {
  char c = text[i];
  if (c == '-')
    return i + 1 == text.size() || text[i + 1] != '>';
  return llvm::isAlnum(c) || c == '_' || c == '.';
}

static size_t wordLength(llvm::StringRef text) {
  size_t length = 0;
  while (length < text.size() && isWordCharacter(text, length))
    ++length;
  return length;
}

/// Length of the string at the front of `text`, with its quotes; that of the
/// line if it is not closed.
static size_t stringLength(llvm::StringRef text) {
  for (size_t i = 1; i < text.size(); ++i)
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  return text.size();
}

Lexer::Lexer(llvm::StringRef content, uint32_t fileNumber, Diagnostics &sink)
    : rest(content), file(fileNumber), diagnostics(sink),
      errorsBefore(sink.errorCount()) {}

bool Lexer::nextLine() {
  if (!rest.empty() && diagnostics.errorCount() - errorsBefore >= kMaxErrors) {
    errorAt({file, lineNumber + 1, 1}, "too many faults, the rest is not read");
    rest = {};
  }
  while (!rest.empty()) {
    std::tie(line, rest) = rest.split('\n');
    ++lineNumber;
    tokenEnd = 0;
    advance();
    if (!atEnd())
      return true;
  }
  line = token = {};
  tokenEnd = 0;
  ++lineNumber;
  return false;
}

size_t Lexer::tokenLength(llvm::StringRef text) const {
  if (size_t length = wordLength(text))
    return length;
  if (text[0] == '"')
    return stringLength(text);
  if (text.starts_with("->"))
    return 2;
  size_t length = 1; // a character of several bytes stays whole
  while (length < text.size() && (text[length] & 0xc0) == 0x80)
    ++length;
  return length;
}

void Lexer::advance() {
  taken = here();
  while (tokenEnd < line.size() && isBlank(line[tokenEnd]))
    ++tokenEnd;
  llvm::StringRef left = line.substr(tokenEnd);
  if (left.empty() || left[0] == '#') {
    token = {};
    return;
  }
  token = left.take_front(tokenLength(left));
  tokenEnd += token.size();
}

SourceLocation Lexer::here() const {
  return {file, lineNumber, static_cast<uint32_t>(tokenEnd - token.size() + 1)};
}

bool Lexer::errorAt(SourceLocation where, const llvm::Twine &message) {
  if (where.line != lastFaultyLine)
    diagnostics.error(where, message.str());
  lastFaultyLine = where.line;
  return false;
}

bool Lexer::error(const llvm::Twine &message) {
  return errorAt(here(), message);
}

bool Lexer::errorTwice(SourceLocation where, SourceLocation first,
                       const llvm::Twine &what) {
  if (where.line == lastFaultyLine)
    return false;
  errorAt(where, what + " stands here a second time");
  diagnostics.lastError().note("it stands here first", first);
  return false;
}

bool Lexer::unexpected(const char *what) {
  if (atEnd())
    return error(llvm::Twine("expected ") + what + ", found the end of the " +
                 (line.empty() ? "text" : "line"));
  constexpr size_t kShown = 40;
  return error(llvm::Twine("expected ") + what + ", found '" +
               token.take_front(kShown) + (token.size() > kShown ? "…'" : "'"));
}

void Lexer::skipStatement() {
  size_t depth = 0;
  do {
    llvm::StringRef first = token, last = token;
    while (!atEnd()) {
      last = token;
      advance();
    }
    depth += last == "{";
    depth -= first == "}" && depth != 0;
  } while (depth != 0 && nextLine());
}

bool Lexer::finishLine() {
  return atEnd() || unexpected("the end of the line");
}

bool Lexer::accept(llvm::StringRef expected) {
  if (token != expected)
    return false;
  advance();
  return true;
}

bool Lexer::take(llvm::StringRef expected) {
  return accept(expected) || unexpected(("'" + expected + "'").str().c_str());
}

bool Lexer::takeNumber(uint64_t &value, const char *what, uint64_t highest) {
  bool isNumber = !token.empty() && llvm::all_of(token, llvm::isDigit);
  if (!isNumber)
    return unexpected(what);
  if (token.getAsInteger(10, value) || value > highest)
    return error(llvm::Twine(what) + " is over " + llvm::Twine(highest));
  advance();
  return true;
}

bool Lexer::takeId(uint32_t &value, const char *what, uint32_t highest) {
  uint64_t number = 0;
  if (!takeNumber(number, what, highest))
    return false;
  value = static_cast<uint32_t>(number);
  return true;
}

bool Lexer::takeBytes(Bytes &value) {
  return takeNumber(value, "a number of bytes", ~Bytes(0));
}

/// Digits behind the point are exact or refused.
bool Lexer::takeTicks(Ticks &value, TimeUnit unit) {
  auto [whole, fraction] = token.split('.');
  bool point = whole.size() != token.size();
  auto digits = [](llvm::StringRef text) {
    return !text.empty() && llvm::all_of(text, llvm::isDigit);
  };
  if (!digits(whole) || (point && !digits(fraction)))
    return unexpected("a time");
  uint64_t ticks = 0, part = 0;
  uint64_t scale = static_cast<uint64_t>(ticksPer(unit));
  if (whole.getAsInteger(10, ticks) || ticks > kMaxTicks / scale)
    return error("a time is over " +
                 llvm::Twine(formatDecimal(kMaxTicks, unit)));
  for (char digit : fraction.rtrim('0')) {
    if (scale == 1)
      return error("a time has more than " +
                   llvm::Twine(unit == TimeUnit::Unit ? 6 : 12) + " decimals");
    scale /= 10;
    part += static_cast<uint64_t>(digit - '0') * scale;
  }
  ticks = ticks * static_cast<uint64_t>(ticksPer(unit)) + part;
  if (ticks > static_cast<uint64_t>(kMaxTicks))
    return error("a time is over " +
                 llvm::Twine(formatDecimal(kMaxTicks, unit)));
  value = static_cast<Ticks>(ticks);
  advance();
  return true;
}

/// Reads what follows a backslash at the front of `text`; false if that is no
/// escape.
static bool takeEscape(llvm::StringRef &text, std::string &out) {
  char c = text.front();
  text = text.drop_front();
  if (c == '"' || c == '\\') {
    out += c;
    return true;
  }
  if (c == 'n' || c == 't') {
    out += c == 'n' ? '\n' : '\t';
    return true;
  }
  uint8_t byte = 0;
  bool hex = c == 'x' && text.size() >= 2 && llvm::isHexDigit(text[0]) &&
             llvm::isHexDigit(text[1]);
  if (!hex || text.take_front(2).getAsInteger(16, byte))
    return false;
  out += static_cast<char>(byte);
  text = text.drop_front(2);
  return true;
}

bool Lexer::takeName(std::string &value, const char *what) {
  if (token.empty() || (token[0] != '"' && !isWordCharacter(token, 0)))
    return unexpected(what);
  value.clear();
  if (token[0] != '"') {
    value = token.str();
    advance();
    return true;
  }
  llvm::StringRef left = token.drop_front();
  while (!left.empty() && left[0] != '"') {
    char c = left[0];
    left = left.drop_front();
    if (c != '\\')
      value += c;
    else if (left.empty() || !takeEscape(left, value))
      return error(
          "a string has an unknown escape; known are \\\" \\\\ \\n \\t "
          "\\xHH");
  }
  if (left.empty())
    return error("a string is not closed");
  advance();
  return true;
}

bool Lexer::takeOp(OpRef &value) {
  std::optional<OpRef> ref = parseOpName({token.data(), token.size()});
  if (!ref)
    return unexpected("an operation such as 0F3");
  value = *ref;
  advance();
  return true;
}

bool Lexer::takeIndex(const char *what, uint32_t &next) {
  uint32_t expected = next++;
  SourceLocation where = here();
  uint32_t given = 0;
  std::string number = std::string("the number of the ") + what;
  if (!takeId(given, number.c_str()))
    return false;
  next = given + 1;
  if (given != expected)
    errorAt(where, llvm::Twine(what) + " " + llvm::Twine(given) +
                       " stands where " + what + " " + llvm::Twine(expected) +
                       " is expected");
  return true; // the rest of the line still makes sense
}

void printString(llvm::StringRef text, llvm::raw_ostream &out) {
  out << '"';
  for (char c : text)
    if (c == '"' || c == '\\')
      out << '\\' << c;
    else if (c == '\n')
      out << "\\n";
    else if (c == '\t')
      out << "\\t";
    else if (llvm::isPrint(c))
      out << c;
    else
      out << "\\x" << llvm::hexdigit(static_cast<unsigned char>(c) >> 4)
          << llvm::hexdigit(c & 15);
  out << '"';
}

void printName(llvm::StringRef text, llvm::raw_ostream &out) {
  if (!text.empty() && wordLength(text) == text.size())
    out << text;
  else
    printString(text, out);
}

} // namespace sluice::text
