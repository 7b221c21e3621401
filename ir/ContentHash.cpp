#include "ir/ContentHash.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

namespace sluice {

static ContentHash canonical(XXH128_hash_t value) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, value);
  ContentHash hash;
  std::copy_n(bytes.digest, hash.size(), hash.begin());
  return hash;
}

ContentHash contentHash(const void *data, size_t size) {
  return canonical(XXH3_128bits(data, size));
}

static XXH3_state_t *stateIn(void *state) {
  return static_cast<XXH3_state_t *>(state);
}

void ContentHasher::Free::operator()(void *hashed) const {
  XXH3_freeState(stateIn(hashed));
}

ContentHasher::ContentHasher() : state(XXH3_createState()) {
  if (!state)
    throw std::bad_alloc();
  XXH3_128bits_reset(stateIn(state.get()));
}

void ContentHasher::take(const void *data, size_t size) {
  XXH3_128bits_update(stateIn(state.get()), data, size);
}

ContentHash ContentHasher::hash() const {
  return canonical(XXH3_128bits_digest(stateIn(state.get())));
}

} // namespace sluice
