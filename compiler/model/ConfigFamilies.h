//===- compiler/model/ConfigFamilies.h - Families of published models -----===//
//
// What a Hugging Face config.json says, in words of `model.transformer`. To add
// a family: a row in ConfigFamilies.cpp.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_MODEL_CONFIGFAMILIES_H
#define SLUICE_COMPILER_MODEL_CONFIGFAMILIES_H

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

/// A field of a config.json that says something of the model's shape.
struct ConfigField {
  std::string_view from; ///< its names, with | between
  std::string_view to;   ///< key of model.transformer
  /// Value where it is not there or null, as the family's own code has it;
  /// kNeeded: it must be there; empty: the key's own default.
  std::string_view otherwise = "";
  uint32_t add = 0;           ///< to the value
  std::string_view over = ""; ///< a field that the value is divided by
};
inline constexpr std::string_view kNeeded = "!";

/// A field with which the family has another shape than a spec can say, unless
/// it has this value or is not there; "=name": the value of that field.
struct ConfigFixed {
  std::string_view from, only;
};

/// A key of model.transformer that is the same in the whole family.
struct ConfigTrait {
  std::string_view to, value;
};

struct ConfigFamily {
  std::string_view type; ///< model_type
  std::array<std::span<const ConfigField>, 4> fields;
  std::span<const ConfigTrait> traits;
  std::span<const ConfigFixed> fixed = {};
  /// The field whose object holds all of it; empty: the file's own.
  std::string_view section = "";
};

std::span<const ConfigFamily> allConfigFamilies();

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_CONFIGFAMILIES_H
