//===- tests/ir/FindingsForTests.h - What a proof found, as one text ------===//
#ifndef SLUICE_TESTS_IR_FINDINGSFORTESTS_H
#define SLUICE_TESTS_IR_FINDINGSFORTESTS_H

#include "ir/verify/Verify.h"

#include <algorithm>
#include <string>
#include <vector>

namespace sluice::testing {

/// A line a finding, of a deadlock its story too.
inline std::string allOf(const Plan &plan,
                         const std::vector<verify::Finding> &findings) {
  std::string text;
  for (const verify::Finding &finding : findings)
    text += std::string(verify::findingKindName(finding.kind)) + ": " +
            verify::describe(plan, finding) + "\n";
  return text;
}

inline bool has(const verify::Result &result, verify::FindingKind kind) {
  return std::any_of(
      result.errors.begin(), result.errors.end(),
      [&](const verify::Finding &finding) { return finding.kind == kind; });
}

/// "rank pair edge stream" with the models that hold.
inline std::string holding(const verify::Result &result) {
  std::string text;
  for (verify::Progress progress : verify::kProgressModels)
    if (result.holdsUnder(progress))
      text += (text.empty() ? "" : " ") +
              std::string(verify::progressName(progress));
  return text;
}
inline constexpr const char *kAllHold = "rank pair edge stream";

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_FINDINGSFORTESTS_H
