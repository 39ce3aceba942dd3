// What the sources with AVX-512 share.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace moet::cpu {
namespace {

// 16 scales of a block.
inline __m512 scales(const std::uint8_t* bytes) {
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
  // 0 is 2^-127, no normal number; 255 is Inf here and must be NaN: Inf * 0 is.
  const __m512 power = _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(0x00400000)));
  return _mm512_fmadd_ps(power, _mm512_setzero_ps(), power);
}

inline void fetch(const std::uint8_t* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0); }

}  // namespace
}  // namespace moet::cpu
