//===- ir/Words.h - Numbers in sentences ----------------------------------===//
#ifndef SLUICE_IR_WORDS_H
#define SLUICE_IR_WORDS_H

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

inline std::string number(uint64_t value) { return std::to_string(value); }

/// "1 rank", "4 ranks"; `many` where another s does not make it.
inline std::string counted(uint64_t count, std::string_view one,
                           std::string_view many = {}) {
  std::string text = number(count) + " ";
  text += count == 1 || many.empty() ? one : many;
  return count == 1 || !many.empty() ? text : text + "s";
}

/// "channel 7, but there are 3".
inline std::string tooHigh(std::string_view what, uint64_t index,
                           uint64_t count) {
  return std::string(what) + ' ' + number(index) + ", but there are " +
         number(count);
}

} // namespace sluice

#endif // SLUICE_IR_WORDS_H
