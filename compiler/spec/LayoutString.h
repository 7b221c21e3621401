//===- compiler/spec/LayoutString.h - Megatron's pipeline layouts ---------===//
//
// A string with a letter per layer: E embedding, t decoder layer, m MTP layer,
// L head and loss; `|` begins the next stage. `X*n` repeats a letter or a bar,
// `(…)*n` what stands in the parentheses, also nested; commas and blanks are
// ornament. "Et*3|(tt|)*29,m|L" is `--pipeline-model-parallel-layout` of
// Megatron-LM. Stages stand in order of their number.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_COMPILER_SPEC_LAYOUTSTRING_H
#define SLUICE_COMPILER_SPEC_LAYOUTSTRING_H

#include "compiler/spec/Keys.h"

#include <optional>

namespace sluice {

/// Whether `text` is meant as such a string, well-formed or not.
bool looksLikeLayoutString(std::string_view text);

/// Reads the scalar of `field`; none after reporting every fault at its letter:
/// unknown characters, parentheses without a partner, repetitions of nothing,
/// E or L not exactly once at its end, a t behind an m, more letters than
/// models have layers and stages. Linear in the text and what it stands for.
std::optional<LayoutString> readLayoutString(const Field &field);

} // namespace sluice

#endif // SLUICE_COMPILER_SPEC_LAYOUTSTRING_H
