//===- runtime/Letter.h - Numbers and words in a letter ------------------===//
#ifndef SLUICE_RUNTIME_LETTER_H
#define SLUICE_RUNTIME_LETTER_H

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace sluice::runtime {

/// Writes one thing after the other, in the bytes of this machine: the
/// processes of a job run the same program on machines of one kind.
class LetterWriter {
public:
  template <typename T> LetterWriter &put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text.append(reinterpret_cast<const char *>(&value), sizeof(value));
    return *this;
  }
  LetterWriter &words(std::string_view value) {
    put<uint64_t>(value.size());
    text.append(value);
    return *this;
  }
  std::string text;
};

/// Reads them back. Past the end there are zeros and no words.
class LetterReader {
public:
  explicit LetterReader(std::string_view letter) : rest(letter) {}
  template <typename T> T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (rest.size() >= sizeof(value)) {
      std::memcpy(&value, rest.data(), sizeof(value));
      rest.remove_prefix(sizeof(value));
    } else {
      rest = {};
    }
    return value;
  }
  std::string_view words() {
    const auto size = get<uint64_t>();
    const std::string_view value = rest.substr(0, size);
    rest.remove_prefix(value.size());
    return value;
  }
  bool atEnd() const { return rest.empty(); }

private:
  std::string_view rest;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_LETTER_H
