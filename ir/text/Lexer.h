//===- ir/text/Lexer.h - Lines and words of a text form -------------------===//
#ifndef SLUICE_IR_TEXT_LEXER_H
#define SLUICE_IR_TEXT_LEXER_H

#include "ir/Diagnostics.h"
#include "ir/Ops.h"
#include "ir/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace sluice::text {

/// Reads a text line by line, and a line word by word. Every `take…` returns
/// false after telling what it expected instead; the rest of the line is then
/// best left alone. Only the first fault of a line is told.
///
/// Words are made of letters, digits, `_`, `.` and `-` (but for that of `->`);
/// strings stand in double quotes with the escapes \" \\ \n \t \xHH; `->` and
/// every other character that prints stand for themselves.
class Lexer {
public:
  Lexer(llvm::StringRef content, uint32_t fileNumber, Diagnostics &sink);

  /// Goes to the next line that holds anything; false at the end of the text
  /// and when there have been too many faults.
  bool nextLine();
  /// Leaves the line; if it opens a block, also the block.
  void skipStatement();
  /// Tells a fault unless the line is at its end.
  bool finishLine();

  llvm::StringRef peek() const { return token; } ///< empty at the line's end
  bool atEnd() const { return token.empty(); }
  SourceLocation here() const;                      ///< of the next token
  SourceLocation previous() const { return taken; } ///< of the last one
  /// Faults told so far, of this text and of others.
  unsigned errorCount() const { return diagnostics.errorCount(); }

  /// Goes on if the next token is `expected`.
  bool accept(llvm::StringRef expected);
  bool take(llvm::StringRef expected);
  bool takeNumber(uint64_t &value, const char *what, uint64_t highest);
  bool takeId(uint32_t &value, const char *what, uint32_t highest = 0x7fffffff);
  bool takeBytes(Bytes &value);
  bool takeTicks(Ticks &value, TimeUnit unit);
  /// A word or a string.
  bool takeName(std::string &value, const char *what);
  bool takeOp(OpRef &value);
  /// The number of an entry, which counts up from 0: `next` is what it must be.
  /// Another one is told, but does not make this false.
  bool takeIndex(const char *what, uint32_t &next);

  /// Tells a fault at the next token, or at `where`. Always returns false.
  bool error(const llvm::Twine &message);
  bool errorAt(SourceLocation where, const llvm::Twine &message);
  /// Tells that `what` stands at `where` though it stood at `first` before.
  /// Always returns false.
  bool errorTwice(SourceLocation where, SourceLocation first,
                  const llvm::Twine &what);
  Diagnostics &sink() { return diagnostics; }
  /// Tells that `what` was expected. Always returns false.
  bool unexpected(const char *what);

private:
  void advance();
  size_t tokenLength(llvm::StringRef rest) const;

  llvm::StringRef rest; ///< lines to come
  llvm::StringRef line;
  llvm::StringRef token;
  size_t tokenEnd = 0; ///< in `line`
  uint32_t lineNumber = 0;
  SourceLocation taken = {};
  uint32_t lastFaultyLine = 0;
  uint32_t file;
  Diagnostics &diagnostics;
  unsigned errorsBefore;
};

/// `text` in double quotes, escaped.
void printString(llvm::StringRef text, llvm::raw_ostream &out);

/// `text` as a word if it is one, else in quotes.
void printName(llvm::StringRef text, llvm::raw_ostream &out);

} // namespace sluice::text

#endif // SLUICE_IR_TEXT_LEXER_H
