//===- runtime/ModuleCall.h - Calling into a stage module ----------------===//
//
// The one place where what a module throws is caught.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULECALL_H
#define SLUICE_RUNTIME_MODULECALL_H

#include "ir/Diagnostics.h"
#include "runtime/sluice.h"

#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace sluice::runtime {

/// What a module says is the machine's fault (SLUICE_ENVIRONMENT).
class EnvironmentFault : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a module wrote, made safe to show.
inline std::string messageOf(sluice_error &error) {
  error.message[sizeof(error.message) - 1] = 0;
  return error.message[0] ? escaped(error.message) : "failed without a message";
}

/// Calls `call(&error)`; true if it returned 0. Throws an EnvironmentFault
/// where it returned SLUICE_ENVIRONMENT. Of what it throws only std::bad_alloc
/// gets through: short memory is never the module's fault. Costs nothing where
/// nothing fails.
template <typename Call> bool callModule(sluice_error &error, Call &&call) {
  error.message[0] = 0;
  int code = 0;
  try {
    code = call(&error);
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &e) {
    constexpr char kPrefix[] = "threw an exception: ";
    constexpr size_t kLength = sizeof(kPrefix) - 1;
    std::memcpy(error.message, kPrefix, kLength);
    std::strncpy(error.message + kLength, e.what(),
                 sizeof(error.message) - kLength - 1);
    return false;
  } catch (...) {
    std::strncpy(error.message, "threw something that is no std::exception",
                 sizeof(error.message) - 1);
    return false;
  }
  if (code == SLUICE_ENVIRONMENT)
    throw EnvironmentFault(messageOf(error));
  return code == 0;
}

/// Destroys an instance; whatever goes wrong, nobody is left to be told.
inline void destroyInstance(const sluice_module &module,
                            void *instance) noexcept {
  try {
    module.destroy(instance);
  } catch (...) {
  }
}

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_MODULECALL_H
