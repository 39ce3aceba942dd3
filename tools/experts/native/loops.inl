// The loops, in g++'s vectors; where the order of bytes changes, in AVX2's instructions if there are any.
// MOET_LOOPS names the namespace, so that two builds of one source do not meet.

#include <algorithm>
#include <array>
#include <cstring>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "tools/experts/native/loops.h"

namespace moet::experts::MOET_LOOPS {

#ifdef __AVX2__
constexpr int kWide = 32;
#else
constexpr int kWide = 16;
#endif

using V = uint8_t __attribute__((vector_size(kWide)));
using S = int8_t __attribute__((vector_size(kWide)));
using V64 = uint64_t __attribute__((vector_size(kWide)));
using V16 = uint16_t __attribute__((vector_size(kWide)));
using Half = uint8_t __attribute__((vector_size(kWide / 2)));
using H = uint8_t __attribute__((vector_size(16)));

template <typename T>
static inline __attribute__((always_inline)) T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
static inline __attribute__((always_inline)) void store(uint8_t* at, const T& value) {
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
static inline __attribute__((always_inline)) int64_t sum(const T& counts) {
  int64_t total = 0;
  for (unsigned at = 0; at < sizeof counts; ++at) total += counts[at];
  return total;
}

#ifdef __AVX2__
static inline __m256i row_at(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
#endif

}  // namespace moet::experts::MOET_LOOPS

#include "tools/experts/native/count.inl"
#include "tools/experts/native/planes.inl"
#include "tools/experts/native/requantize.inl"

namespace moet::experts::MOET_LOOPS {

static constexpr Loops kLoops{
#ifdef __AVX2__
    "avx2",
#else
    "portable",
#endif
    zero_nibbles, zero_bytes, zero_blocks, alternate, histogram, nvfp4,
    largest_bytes, snap, codes, nibbles, quintal,
};

}  // namespace moet::experts::MOET_LOOPS
