//===- tests/ir/DiagnosticsTest.cpp - How faults are shown ----------------===//
#include "ir/Diagnostics.h"
#include "tests/Catch.h"

using namespace sluice;

/// One error at `column` of a source of this one line.
static std::string shown(const std::string &line, uint32_t column) {
  Diagnostics diagnostics;
  uint32_t file = diagnostics.addSource("a.yaml", line);
  diagnostics.error({file, 1, column}, "no");
  return diagnostics.render();
}

/// The line of the source and the caret under it.
static std::pair<std::string, std::string> window(const std::string &text) {
  size_t first = text.find('\n') + 1, second = text.find('\n', first) + 1;
  return {text.substr(first, second - first - 1),
          text.substr(second, text.size() - second - 1)};
}

TEST_CASE("diagnostics: a caret stands under its column") {
  CHECK(shown("ranks: 0", 8) == "a.yaml:1:8: error: no\n"
                                "  ranks: 0\n"
                                "         ^\n");
  CHECK(shown("ranks: 0", 1) == "a.yaml:1:1: error: no\n"
                                "  ranks: 0\n"
                                "  ^\n");
  // Behind the end of the line, and with a line end of two bytes.
  CHECK(shown("ab", 9) == "a.yaml:1:9: error: no\n"
                          "  ab\n"
                          "    ^\n");
  CHECK(shown("ab\r\nc", 2) == "a.yaml:1:2: error: no\n"
                               "  ab\n"
                               "   ^\n");
  CHECK(shown("", 1) == "a.yaml:1:1: error: no\n"
                        "  \n"
                        "  ^\n");
}

TEST_CASE("diagnostics: columns count bytes, carets characters") {
  // Two letters of two bytes and one of three stand before the x.
  CHECK(shown("\xc3\xa4\xc3\xb6\xe2\x82\xac"
              "x",
              8) == "a.yaml:1:8: error: no\n"
                    "  \xc3\xa4\xc3\xb6\xe2\x82\xac"
                    "x\n"
                    "     ^\n");
}

TEST_CASE("diagnostics: bytes that do not print are escaped") {
  CHECK(shown("\x01\xff"
              "b",
              3) == "a.yaml:1:3: error: no\n"
                    "  \\x01\\xffb\n"
                    "          ^\n");
  CHECK(escaped("a\tb\x7f") == "a\\x09b\\x7f");
  CHECK(escaped("\xc3\xa4") == "\xc3\xa4");
  // Cut short, overlong, a surrogate, too large, a control character.
  CHECK(escaped("\xc3") == "\\xc3");
  CHECK(escaped("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(escaped("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(escaped("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(escaped("\xc2\x85") == "\\xc2\\x85");
}

TEST_CASE("diagnostics: of a long line a window around the caret is shown") {
  std::string line(400, '.');
  line[299] = 'x';
  auto [text, caret] = window(shown(line, 300));
  CHECK(text.size() == 2 + 160);
  CHECK(text[caret.size() - 1] == 'x');
  CHECK(caret == std::string(2 + 80, ' ') + "^");
  // Near its ends.
  CHECK(window(shown(line, 5)) ==
        std::pair("  " + line.substr(0, 160), std::string("      ^")));
  CHECK(window(shown(line, 400)).first == "  " + line.substr(319, 81));
}

TEST_CASE("diagnostics: a window cuts between characters") {
  std::string line;
  for (int i = 0; i < 200; ++i)
    line += "\xe2\x82\xac"; // three bytes each
  for (uint32_t column : {1u, 301u, 304u, 307u, 598u}) {
    auto [text, caret] = window(shown(line, column));
    INFO(text);
    CHECK(text.find('\\') == std::string::npos);
    CHECK(text.size() <= 2 + 160);
    CHECK(caret.size() - 3 <= 80 / 3);
  }
}

TEST_CASE("diagnostics: in order of place, notes under theirs") {
  Diagnostics diagnostics;
  uint32_t file = diagnostics.addSource("a.yaml", "one\ntwo\n");
  diagnostics.warning({file, 2, 1}, "second");
  diagnostics.error({file, 1, 2}, "first")
      .note("as here", {file, 2, 3})
      .note("without a place");
  diagnostics.error({file, 2, 1}, "third");
  CHECK(diagnostics.render() == "a.yaml:1:2: error: first\n"
                                "  one\n"
                                "   ^\n"
                                "a.yaml:2:3: note: as here\n"
                                "  two\n"
                                "    ^\n"
                                "note: without a place\n"
                                "a.yaml:2:1: warning: second\n"
                                "  two\n"
                                "  ^\n"
                                "a.yaml:2:1: error: third\n"
                                "  two\n"
                                "  ^\n");
  CHECK(diagnostics.errorCount() == 2);
  CHECK(diagnostics.lastError().message == "third");
}

TEST_CASE("diagnostics: places that are not in a source") {
  Diagnostics diagnostics;
  diagnostics.error({}, "no source");
  CHECK(diagnostics.render() == "input: error: no source\n");
  Diagnostics other;
  uint32_t file = other.addSource("a\n.yaml", "one");
  other.error({file, 0, 0}, "the whole");
  other.error({file, 7, 1}, "past the end");
  CHECK(other.render() == "a\\x0a.yaml: error: the whole\n"
                          "a\\x0a.yaml:7:1: error: past the end\n");
}
