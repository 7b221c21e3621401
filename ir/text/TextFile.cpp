#include "ir/text/TextFile.h"

#include "ir/Diagnostics.h"
#include "ir/Words.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

namespace sluice {

static Status take(llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer,
                   const std::string &name, std::string &text) {
  if (!buffer)
    return Status::input("cannot open '" + escaped(name) +
                         "': " + buffer.getError().message());
  constexpr uint64_t kMostBytes = ~uint32_t(0); // places are of 32 bits
  if ((*buffer)->getBufferSize() > kMostBytes)
    return Status::input("'" + escaped(name) + "' has " +
                         counted((*buffer)->getBufferSize(), "byte") +
                         ", a text at most " + number(kMostBytes));
  text = (*buffer)->getBuffer().str();
  return Status();
}

Status readTextFile(const std::string &name, std::string &text) {
  llvm::sys::fs::file_status about;
  if (!llvm::sys::fs::status(name, about) &&
      (about.type() == llvm::sys::fs::file_type::character_file ||
       about.type() == llvm::sys::fs::file_type::block_file))
    return Status::input("'" + escaped(name) + "' is a device, not a file");
  return take(llvm::MemoryBuffer::getFile(name, /*IsText=*/false,
                                          /*RequiresNullTerminator=*/false),
              name, text);
}

Status readStandardInput(std::string &text) {
  return take(llvm::MemoryBuffer::getSTDIN(), "-", text);
}

} // namespace sluice
