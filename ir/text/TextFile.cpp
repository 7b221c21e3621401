#include "ir/text/TextFile.h"

#include "ir/Diagnostics.h"
#include "ir/Words.h"

#include "llvm/Support/MemoryBuffer.h"

namespace sluice {

Status readTextFile(const std::string &name, std::string &text) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(
      name, /*IsText=*/false, /*RequiresNullTerminator=*/false);
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

} // namespace sluice
