#include <immintrin.h>

#include "tools/native/sample.h"

std::int64_t sum_wide(const std::uint8_t* bytes, std::int64_t n) {
  __m256i total = _mm256_setzero_si256();
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i part = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + i));
    total = _mm256_add_epi64(total, _mm256_sad_epu8(part, _mm256_setzero_si256()));
  }
  alignas(32) std::int64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), total);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + sum_plain(bytes + i, n - i);
}

bool shared_is_wide_in_avx2() { return shared_is_wide(); }
