// Preloaded by test_allocations.py: counts what a process allocates.
#include <atomic>
#include <cstddef>
#include <cstdint>

extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

static std::atomic<std::int64_t> count{0};

#define MOET_EXPORT __attribute__((visibility("default")))

MOET_EXPORT std::int64_t moet_allocations() { return count.load(); }

MOET_EXPORT void* malloc(std::size_t size) {
  count++;
  return __libc_malloc(size);
}

MOET_EXPORT void* calloc(std::size_t n, std::size_t size) {
  count++;
  return __libc_calloc(n, size);
}

MOET_EXPORT void* realloc(void* old, std::size_t size) {
  count++;
  return __libc_realloc(old, size);
}

MOET_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count++;
  return __libc_memalign(alignment, size);
}

MOET_EXPORT int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  count++;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : 12;
}
}
