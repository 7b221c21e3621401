//===- compiler/spec/Yaml.h - YAML text to a tree with places ------------===//
//
// The only use of yaml-cpp. The tree is plain data: aliases are resolved within
// a budget, duplicate keys are kept for the reader to report, and every value
// knows its place.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SPEC_YAML_H
#define SLUICE_COMPILER_SPEC_YAML_H

#include "ir/Diagnostics.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct YamlEntry;

enum class YamlKind : uint8_t { Null, Scalar, List, Map };

/// One value. `cost` is what the value and all below it take of the budget.
struct YamlNode {
  YamlKind kind = YamlKind::Null;
  SourceLocation where;
  uint64_t cost = 1;
  std::string text;               ///< of a scalar
  uint32_t lead = 0;              ///< bytes before the text: 1 for a quote
  std::vector<YamlNode> items;    ///< of a list
  std::vector<YamlEntry> entries; ///< of a map, in order, duplicates kept
};

struct YamlEntry {
  std::string key;
  SourceLocation where;
  YamlNode value;
};

/// Limits that keep a hostile text cheap: bytes of text, levels of nesting, and
/// values with aliases counted in full (a scalar counts one per 64 bytes).
inline constexpr size_t kMaxYamlBytes = size_t(1) << 20;
inline constexpr unsigned kMaxYamlDepth = 64;
inline constexpr uint64_t kMaxYamlCost = uint64_t(1) << 19;

/// Reads the one document of `text`, whose first byte stands at `origin`; none
/// after reporting the first fault (encoding, syntax, limits). An empty
/// document is a Null. Linear in the text and the values.
std::optional<YamlNode> parseYaml(std::string_view text, SourceLocation origin,
                                  Diagnostics &diagnostics);

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_YAML_H
