//===- ir/text/Faults.h - The faults of a list, told up to a limit --------===//
#ifndef SLUICE_IR_TEXT_FAULTS_H
#define SLUICE_IR_TEXT_FAULTS_H

#include "ir/Diagnostics.h"

#include <string>
#include <utility>

namespace sluice {

/// Tells the first kMost faults in full and of the others how many there are,
/// so that a file of nothing but faults is told in time and space.
class Faults {
public:
  explicit Faults(Diagnostics &to) : diagnostics(to) {}

  /// Counts a fault; true if it is still to be told. Ask before work is done
  /// for its words.
  bool admits(SourceLocation where) {
    if (++count == kMost + 1)
      firstUntold = where;
    return count <= kMost;
  }
  /// Tells a fault that was admitted.
  void tell(SourceLocation where, std::string message) {
    diagnostics.error(where, std::move(message));
  }
  uint64_t seen() const { return count; }

  /// Says how many were not told, at the first of these.
  void finish() {
    if (count > kMost)
      diagnostics.error(firstUntold, "and " + std::to_string(count - kMost) +
                                         " more faults, the first of them "
                                         "here");
  }

  static constexpr uint64_t kMost = 100;

private:
  Diagnostics &diagnostics;
  uint64_t count = 0;
  SourceLocation firstUntold;
};

} // namespace sluice

#endif // SLUICE_IR_TEXT_FAULTS_H
