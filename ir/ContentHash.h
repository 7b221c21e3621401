//===- ir/ContentHash.h - Hashes that detect damage -----------------------===//
#ifndef SLUICE_IR_CONTENTHASH_H
#define SLUICE_IR_CONTENTHASH_H

#include <array>
#include <cstddef>
#include <memory>

namespace sluice {

/// XXH3-128 in canonical form: against damage, not against malice.
using ContentHash = std::array<unsigned char, 16>;

ContentHash contentHash(const void *data, size_t size);

/// The same of bytes that come one after the other. Throws std::bad_alloc.
class ContentHasher {
public:
  ContentHasher();
  void take(const void *data, size_t size);
  ContentHash hash() const;

private:
  struct Free {
    void operator()(void *hashed) const;
  };
  std::unique_ptr<void, Free> state;
};

} // namespace sluice

#endif // SLUICE_IR_CONTENTHASH_H
