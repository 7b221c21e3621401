//===- compiler/emit/Color.h - Colours of operations ---------------------===//
#ifndef SLUICE_COMPILER_EMIT_COLOR_H
#define SLUICE_COMPILER_EMIT_COLOR_H

#include "ir/Ops.h"

#include "llvm/ADT/StringRef.h"

namespace sluice {

/// Parts from 0 to 255.
struct Rgb {
  unsigned red = 0, green = 0, blue = 0;
};

/// The column Color of Ops.def, "#rrggbb".
inline Rgb rgbOf(Op op) {
  llvm::StringRef color = info(op).color;
  Rgb rgb;
  color.substr(1, 2).getAsInteger(16, rgb.red);
  color.substr(3, 2).getAsInteger(16, rgb.green);
  color.substr(5, 2).getAsInteger(16, rgb.blue);
  return rgb;
}

} // namespace sluice

#endif // SLUICE_COMPILER_EMIT_COLOR_H
