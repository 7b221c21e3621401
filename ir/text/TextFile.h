//===- ir/text/TextFile.h - Reads a text from a file ----------------------===//
#ifndef SLUICE_IR_TEXT_TEXTFILE_H
#define SLUICE_IR_TEXT_TEXTFILE_H

#include "ir/Status.h"

#include <string>

namespace sluice {

/// Reads the file `name`. Refused is what cannot be opened, a device, which may
/// have no end, and what has more bytes than the places of a Diagnostics can
/// count.
Status readTextFile(const std::string &name, std::string &text);

/// The same of standard input.
Status readStandardInput(std::string &text);

} // namespace sluice

#endif // SLUICE_IR_TEXT_TEXTFILE_H
