//===- runtime/Modules.cpp -----------------------------------------------===//
#include "runtime/Modules.h"

#include "ir/Diagnostics.h"
#include "runtime/modules/gpt/Module.h"
#include "runtime/modules/synthetic/Synthetic.h"

#include <dlfcn.h>
#include <utility>

namespace sluice::runtime {

namespace {
struct ModuleRow {
  std::string_view name;
  const sluice_module *(*entry)();
};
} // namespace

static constexpr ModuleRow kModules[] = {
#define SLUICE_MODULE(Name, Entry) {Name, Entry},
#include "runtime/Modules.def"
};

const sluice_module *findModule(std::string_view name) {
  for (const ModuleRow &row : kModules)
    if (row.name == name)
      return row.entry();
  return nullptr;
}

std::vector<std::string_view> moduleNames() {
  std::vector<std::string_view> names;
  for (const ModuleRow &row : kModules)
    names.push_back(row.name);
  return names;
}

Status checkModule(const sluice_module *module, const std::string &origin) {
  if (!module)
    return Status::input(origin + " gives no module");
  if (module->version != SLUICE_MODULE_VERSION)
    return Status::input(origin + " has version " +
                         std::to_string(module->version) +
                         " of the interface of stage modules, this program " +
                         std::to_string(SLUICE_MODULE_VERSION));
  const std::pair<const char *, bool> functions[] = {
      {"name", module->name != nullptr},
      {"create", module->create != nullptr},
      {"bytes", module->bytes != nullptr},
      {"bind", module->bind != nullptr},
      {"begin_step", module->begin_step != nullptr},
      {"forward", module->forward != nullptr},
      {"backward_input", module->backward_input != nullptr},
      {"backward_weight", module->backward_weight != nullptr},
      {"optimizer_step", module->optimizer_step != nullptr},
      {"loss", module->loss != nullptr},
      {"tensor_count", module->tensor_count != nullptr},
      {"tensor", module->tensor != nullptr},
      {"destroy", module->destroy != nullptr}};
  for (const auto &[name, there] : functions)
    if (!there)
      return Status::input(origin + " lacks " + name);
  return {};
}

static Status loadLibrary(const std::string &path,
                          const sluice_module *&module) {
  const std::string origin = "module " + escaped(path);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status::input("cannot load " + origin + ": " + escaped(dlerror()));
  void *symbol = dlsym(library, SLUICE_MODULE_ENTRY);
  if (!symbol)
    return Status::input(origin + " does not export " SLUICE_MODULE_ENTRY);
  const sluice_module *found =
      reinterpret_cast<sluice_module_entry_fn>(symbol)();
  if (Status s = checkModule(found, origin); !s.ok())
    return s;
  module = found;
  return {};
}

Status loadModule(const std::string &nameOrPath, const sluice_module *&module) {
  if (nameOrPath.find('/') != std::string::npos)
    return loadLibrary(nameOrPath, module);
  if (const sluice_module *found = findModule(nameOrPath)) {
    module = found;
    return {};
  }
  std::string known;
  for (const std::string_view name : moduleNames())
    known.append(known.empty() ? "" : ", ").append(name);
  return Status::usage("there is no module " + escaped(nameOrPath) +
                       "; shipped are " + known +
                       ", a shared library is named by a path with a '/'");
}

} // namespace sluice::runtime
