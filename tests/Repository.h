//===- tests/Repository.h - Where the files of the repository are --------===//
#ifndef SLUICE_TESTS_REPOSITORY_H
#define SLUICE_TESTS_REPOSITORY_H

#include <string>

namespace sluice::tests {

/// Path of a file of the repository. A function, not a macro for every test:
/// so tests compile to the same objects wherever the repository lies.
std::string inRepository(const std::string &path);

} // namespace sluice::tests

#endif // SLUICE_TESTS_REPOSITORY_H
