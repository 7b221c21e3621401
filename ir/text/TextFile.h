//===- ir/text/TextFile.h - Reads a text from a file ----------------------===//
#ifndef SLUICE_IR_TEXT_TEXTFILE_H
#define SLUICE_IR_TEXT_TEXTFILE_H

#include "ir/Status.h"

#include <string>

namespace sluice {

/// Reads the file `name`, or standard input for "-". Refused is what cannot be
/// opened, and what has more bytes than the places of a Diagnostics can count.
Status readTextFile(const std::string &name, std::string &text);

} // namespace sluice

#endif // SLUICE_IR_TEXT_TEXTFILE_H
