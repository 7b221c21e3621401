//===- tests/compiler/SpecGolden.cpp - Whole messages of faulty specs -----===//
//
// tests/golden/spec/*.txt: input and expected messages in one file.
//   === set KEY=VALUE      an override; any number
//   === spec               the input; `=== spec escaped`: with \xHH for bytes
//   === messages           all that is said about it
// SLUICE_UPDATE_GOLDEN=1 in the environment rewrites the messages.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Layer.h"
#include "compiler/partition/Partition.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"
#include "tests/Repository.h"
#include "tests/compiler/SpecForTests.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace sluice;

namespace {

struct Golden {
  std::string head; ///< all up to and with the line `=== messages`
  std::vector<Override> overrides;
  std::string spec;
  std::string messages;
};

std::string readFile(const std::filesystem::path &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string unescaped(const std::string &text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "\\x") == 0) {
      out += static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

Override parseOverride(const std::string &text) {
  size_t equals = text.find('=');
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Golden parseGolden(const std::string &text) {
  Golden golden;
  std::string *into = nullptr;
  bool escapes = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    std::string line = text.substr(at, end - at);
    at = end;
    if (line.rfind("=== set ", 0) == 0)
      golden.overrides.push_back(
          parseOverride(line.substr(8, line.size() - 9)));
    else if (line.rfind("=== spec", 0) == 0)
      into = &golden.spec, escapes = line.find("escaped") != line.npos;
    else if (line == "=== messages\n")
      into = &golden.messages;
    else if (into)
      *into += line;
    if (into != &golden.messages || line == "=== messages\n")
      golden.head += line;
  }
  if (escapes)
    golden.spec = unescaped(golden.spec);
  return golden;
}

/// What the tool says about a spec, up to the cut into stages.
std::string messagesFor(const Golden &golden) {
  Diagnostics diagnostics;
  std::optional<Spec> spec =
      parseSpec(golden.spec, "spec.yaml", golden.overrides, diagnostics);
  CHECK(spec.has_value() != diagnostics.hasErrors());
  std::optional<Model> model =
      spec ? buildModel(*spec, diagnostics) : std::nullopt;
  if (model) {
    bool cut =
        partition(*spec, *model, stagesOf(*spec), diagnostics).has_value();
    CHECK(cut != diagnostics.hasErrors());
  }
  return diagnostics.render();
}

} // namespace

TEST_CASE("spec: golden messages") {
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(
           tests::inRepository("tests/golden/spec")))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() > 50);
  bool update = std::getenv("SLUICE_UPDATE_GOLDEN") != nullptr;
  for (const std::filesystem::path &file : files) {
    INFO(file.filename().string());
    Golden golden = parseGolden(readFile(file));
    std::string messages = messagesFor(golden);
    if (update)
      std::ofstream(file, std::ios::binary) << golden.head << messages;
    else
      CHECK(messages == golden.messages);
    CHECK_FALSE(messages.empty());
  }
}
