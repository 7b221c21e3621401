#include "tests/Repository.h"

namespace sluice::tests {

std::string inRepository(const std::string &path) {
  return SLUICE_SOURCE_DIR "/" + path;
}

} // namespace sluice::tests
