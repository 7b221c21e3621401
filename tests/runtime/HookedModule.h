//===- tests/runtime/HookedModule.h - A synthetic module with a hook -----===//
#ifndef SLUICE_TESTS_RUNTIME_HOOKEDMODULE_H
#define SLUICE_TESTS_RUNTIME_HOOKEDMODULE_H

#include "ir/Ops.h"
#include "runtime/sluice.h"

#include <functional>
#include <string>
#include <string_view>

namespace sluice::tests {

/// What the hooked module does besides what `synthetic` does. One at a time.
struct ModuleHooks {
  /// Before each function of a stage; its result is the function's, unless it
  /// is 0. `call` is null where the function has none.
  std::function<int(std::string_view function, Id stage,
                    const sluice_call *call, sluice_error *error)>
      before;
  sluice_bytes needs = {};
  /// Each stage has two tensors, in reverse order of their position, which are
  /// the halves of its parameters.
  bool tensors = false;
  /// All stages give the same name and position to theirs.
  bool sameTensors = false;
  /// The last stage has a loss: the number of the step.
  bool loss = false;
};

/// Puts hooks in place for its lifetime.
class WithHooks {
public:
  explicit WithHooks(ModuleHooks hooks);
  ~WithHooks();
  WithHooks(const WithHooks &) = delete;
  WithHooks &operator=(const WithHooks &) = delete;
};

const sluice_module *hookedModule();

/// Instances of the hooked module that exist.
int hookedInstances();

/// Writes `text` to `error` and returns 1.
int failWith(sluice_error *error, const std::string &text);

} // namespace sluice::tests

#endif // SLUICE_TESTS_RUNTIME_HOOKEDMODULE_H
