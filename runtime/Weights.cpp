//===- runtime/Weights.cpp -----------------------------------------------===//
#include "runtime/Weights.h"

#include <cstring>

namespace sluice::runtime {

static constexpr char kMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'W', 'T'};
static constexpr uint32_t kVersion = 1;

Status WeightsFile::number(uint64_t value, unsigned bytes) {
  unsigned char out[8];
  for (unsigned i = 0; i < bytes; ++i)
    out[i] = static_cast<unsigned char>(value >> (8 * i));
  return file.append(out, bytes);
}

Status WeightsFile::begin(uint64_t count) {
  if (Status s = file.open(path); !s.ok())
    return s;
  if (Status s = file.append(kMagic, sizeof(kMagic)); !s.ok())
    return s;
  if (Status s = number(kVersion, 4); !s.ok())
    return s;
  return number(count, 8);
}

Status WeightsFile::tensor(const sluice_tensor &tensor) {
  const size_t length = std::strlen(tensor.name);
  if (Status s = number(length, 4); !s.ok())
    return s;
  if (Status s = file.append(tensor.name, length); !s.ok())
    return s;
  if (Status s = number(tensor.bytes, 8); !s.ok())
    return s;
  return file.append(tensor.data, tensor.bytes);
}

Status WeightsFile::end() { return file.commit(); }

} // namespace sluice::runtime
