#include "tools/sluice/LargePages.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

namespace sluice {

#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
void useLargePages() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
    return;
  // Addresses only: memory is taken as it is touched.
  constexpr size_t kReserved = size_t(256) << 20, kPage = size_t(2) << 20;
  constexpr int kNever = INT32_MAX;
  constexpr int kLarge = 8 << 20; // goes back to the system when it is freed
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_MMAP_THRESHOLD, kNever);
  void *reserved = std::malloc(kReserved);
  mallopt(M_MMAP_THRESHOLD, kLarge);
  if (!reserved)
    return;
  auto begin = reinterpret_cast<uintptr_t>(reserved);
  std::free(reserved); // to the heap, which keeps it
  uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  (void)::madvise(reinterpret_cast<void *>(first),
                  (begin + kReserved - first) / kPage * kPage, MADV_HUGEPAGE);
}
#else
void useLargePages() {}
#endif

} // namespace sluice
