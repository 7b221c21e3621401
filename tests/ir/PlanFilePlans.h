//===- tests/ir/PlanFilePlans.h - Plans for the tests of their readers ----===//
#ifndef SLUICE_TESTS_IR_PLANFILEPLANS_H
#define SLUICE_TESTS_IR_PLANFILEPLANS_H

#include "ir/Plan.h"

#include <random>
#include <string>

namespace sluice::testing {

/// Two ranks with every operation, every kind of buffer, every way to use one,
/// a group, and no number that stands in two places. Structurally right, but
/// no training step.
Plan smallPlan();

/// Structurally right, otherwise anything: up to four ranks, some of them
/// empty.
Plan randomPlan(std::mt19937_64 &random);

/// A text that is equal for equal plans.
std::string textOf(const Plan &plan);

std::string readFile(const std::string &path);
void writeFile(const std::string &path, const std::string &bytes);

/// Makes the hashes of the file right again after its sections were changed,
/// as far as its table can be followed.
void repairHashes(std::string &file);

/// A folder that is removed with all in it.
class TemporaryFolder {
public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  ~TemporaryFolder();
  std::string file(const std::string &name) const { return path + "/" + name; }
  /// Names of what is in it, sorted, with a space between.
  std::string contents() const;
  std::string path;
};

} // namespace sluice::testing

#endif // SLUICE_TESTS_IR_PLANFILEPLANS_H
