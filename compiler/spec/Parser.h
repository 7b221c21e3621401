//===- compiler/spec/Parser.h - YAML to Spec -----------------------------===//
#ifndef SLUICE_COMPILER_SPEC_PARSER_H
#define SLUICE_COMPILER_SPEC_PARSER_H

#include "compiler/spec/Spec.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// One `--set pipeline.microbatches=32`.
struct Override {
  std::string key;   ///< dotted path
  std::string value; ///< YAML
};

/// Parses `text` (of a file called `file`, "-" for standard input) as a spec.
/// Reports all faults; none if there is one. The sources are added to
/// `diagnostics` here, the overrides' too (file name "--set").
std::optional<Spec> parseSpec(std::string_view text, const std::string &file,
                              const std::vector<Override> &overrides,
                              Diagnostics &diagnostics);

/// Changes keys of the section pipeline of `spec`, `key` being the name of one
/// ("ranks"), as `--set pipeline.KEY=VALUE` does. False after reporting what is
/// wrong with them.
bool changePipeline(Spec &spec, const std::vector<Override> &settings,
                    Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_PARSER_H
