//===- tests/fuzz/SpecFuzz.cpp - Any bytes as a spec ----------------------===//
//
// Parsing, model and partition must end in a result or a diagnostic.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Layer.h"
#include "compiler/partition/Partition.h"
#include "compiler/spec/Parser.h"
#include "tests/compiler/SpecForTests.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace sluice;
  Diagnostics diagnostics;
  std::string_view text(reinterpret_cast<const char *>(data), size);
  std::optional<Spec> spec = parseSpec(text, "fuzz.yaml", {}, diagnostics);
  std::optional<Model> model;
  if (spec)
    model = buildModel(*spec, diagnostics);
  if (model && !partition(*spec, *model, stagesOf(*spec), diagnostics))
    model.reset();
  if (!model && diagnostics.render().empty())
    std::abort(); // refused without a word
  return 0;
}
