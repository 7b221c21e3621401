// Each file of tests/golden/text is an input, a line `--- output` or
// `--- diagnostics`, and what the reader makes of it. SLUICE_UPDATE_GOLDEN=1
// writes the second part anew.

#include "ir/text/Text.h"
#include "tests/Catch.h"
#include "tests/Repository.h"
#include "tests/ir/PlanFilePlans.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

using namespace sluice;
using namespace sluice::testing;

static constexpr std::string_view kOutput = "--- output\n";
static constexpr std::string_view kDiagnostics = "--- diagnostics\n";

static std::vector<std::filesystem::path> goldenFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(
           tests::inRepository("tests/golden/text")))
    if (entry.path().extension() == ".ir")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

static std::string print(const IrText &ir) {
  std::string text;
  llvm::raw_string_ostream out(text);
  printIr(ir, out);
  return text;
}

/// What the reader makes of `input`, headed by which it is.
static std::string resultOf(const std::string &input, const std::string &name) {
  Diagnostics diagnostics;
  std::optional<IrText> ir = parseIr(input, name, diagnostics);
  REQUIRE(ir.has_value() == !diagnostics.hasErrors());
  if (!ir)
    return std::string(kDiagnostics) + diagnostics.render();
  std::string printed = print(*ir);
  Diagnostics again;
  std::optional<IrText> reread = parseIr(printed, "printed", again);
  INFO(again.render());
  REQUIRE(reread.has_value());
  REQUIRE(print(*reread) == printed);
  return std::string(kOutput) + printed;
}

TEST_CASE("text: golden files") {
  std::vector<std::filesystem::path> files = goldenFiles();
  REQUIRE(files.size() >= 6);
  for (const std::filesystem::path &path : files) {
    std::string whole = readFile(path.string());
    size_t cut = std::min(whole.find(kOutput), whole.find(kDiagnostics));
    std::string input = whole.substr(0, cut);
    std::string result = resultOf(input, path.filename().string());
    if (std::getenv("SLUICE_UPDATE_GOLDEN"))
      writeFile(path.string(), input + result);
    else
      CHECK(whole.substr(std::min(cut, whole.size())) == result);
  }
}

TEST_CASE("text: an input is known by its first line") {
  CHECK(isIrText("sluice-ir 1\n"));
  CHECK(isIrText("\n# made by hand\n\r\n  sluice-ir 9"));
  CHECK_FALSE(isIrText(""));
  CHECK_FALSE(isIrText("# sluice-ir 1\n"));
  CHECK_FALSE(isIrText("sluice: 1\n"));
  CHECK_FALSE(isIrText("SLUICEPL\x01"));
}

TEST_CASE("diagnostics: characters that are not seen are escaped") {
  CHECK(escaped("a\u202eb\u200bc\ufeff\u2066") ==
        "a\\xe2\\x80\\xaeb\\xe2\\x80\\x8bc\\xef\\xbb\\xbf\\xe2\\x81\\xa6");
  CHECK(escaped("\U000e0041\u00ad") == "\\xf3\\xa0\\x81\\x81\\xc2\\xad");
  CHECK(escaped("größe 長さ ∑ 😀") == "größe 長さ ∑ 😀");
}
