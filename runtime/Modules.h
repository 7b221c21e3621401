//===- runtime/Modules.h - Stage modules by name or from a file ----------===//
#ifndef SLUICE_RUNTIME_MODULES_H
#define SLUICE_RUNTIME_MODULES_H

#include "ir/Status.h"
#include "runtime/sluice.h"

#include <string>
#include <string_view>
#include <vector>

namespace sluice::runtime {

/// The shipped module of exactly this name, or null.
const sluice_module *findModule(std::string_view name);

/// The names of the shipped modules, in order of the table.
std::vector<std::string_view> moduleNames();

/// Finds the module that a command line names: a shipped one, or, if the name
/// contains a '/', a shared library, which stays loaded until the process ends.
/// Only ever give it what the user of this process typed, never what a plan or
/// a spec says: it runs code.
Status loadModule(const std::string &nameOrPath, const sluice_module *&module);

/// Refuses a table of another version or with a missing function; `origin`
/// names it in the message.
Status checkModule(const sluice_module *module, const std::string &origin);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_MODULES_H
