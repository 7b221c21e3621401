//===- ir/PlanStructureWords.h - How numbers out of range are told --------===//
#ifndef SLUICE_IR_PLANSTRUCTUREWORDS_H
#define SLUICE_IR_PLANSTRUCTUREWORDS_H

#include <cstdint>
#include <string>

namespace sluice {

/// "channel 7, but there are 3".
inline std::string tooHigh(const char *what, uint64_t index, uint64_t count) {
  return std::string(what) + ' ' + std::to_string(index) + ", but there are " +
         std::to_string(count);
}

} // namespace sluice

#endif // SLUICE_IR_PLANSTRUCTUREWORDS_H
