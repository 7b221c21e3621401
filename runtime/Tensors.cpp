#include "runtime/Tensors.h"

#include "ir/Diagnostics.h"
#include "runtime/ModuleCall.h"

#include <string>

namespace sluice::runtime {

Status addTensors(const sluice_module &module, void *instance, Id stage,
                  std::vector<sluice_tensor> &tensors) {
  const std::string where = "module " + escaped(module.name) + ", stage " +
                            std::to_string(stage) + ": ";
  sluice_error error;
  uint32_t count = 0;
  if (!callModule(error, [&](sluice_error *) {
        count = module.tensor_count(instance);
        return 0;
      }))
    return Status::environment(where + messageOf(error));
  for (uint32_t i = 0; i < count; ++i) {
    sluice_tensor tensor = {};
    if (!callModule(error, [&](sluice_error *e) {
          return module.tensor(instance, i, &tensor, e);
        }))
      return Status::environment(where + messageOf(error));
    if (!tensor.name || !tensor.data)
      return Status::environment(where + "tensor " + std::to_string(i) +
                                 " has no name or no data");
    if (tensor.state_count > SLUICE_MAX_STATES)
      return Status::environment(where + "tensor " + escaped(tensor.name) +
                                 " has " + std::to_string(tensor.state_count) +
                                 " states, at most " +
                                 std::to_string(SLUICE_MAX_STATES));
    tensors.push_back(tensor);
  }
  return {};
}

} // namespace sluice::runtime
