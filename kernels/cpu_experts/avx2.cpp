// AVX2 and FMA: 8 rows to a vector, products of bytes by vpmaddubsw.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu_experts/kernel.h"

namespace moet::cpu {
namespace {

#include "kernels/cpu_experts/between.inc"

inline __m256 scales(const std::uint8_t* bytes) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  // 0 is 2^-127, no normal number; 255 is Inf here and must be NaN: Inf * 0 is.
  const __m256 power = _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(wide, 23), _mm256_set1_epi32(0x00400000)));
  return _mm256_fmadd_ps(power, _mm256_setzero_ps(), power);
}

template <int M, int P>
void rows(const std::uint8_t* a, const std::uint8_t* b, int superblocks, const Activations& x, Next next, float* out) {
  // Twice each code's value and 12 more: vpmaddubsw wants one side without a sign.
  const __m256i twice =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i low = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  std::memset(out, 0, sizeof(float) * 2 * M * kBand);
  for (int superblock = 0; superblock < superblocks; superblock++, a += kSuperblock, b += kSuperblock) {
    const bool inside = superblock + kAhead < superblocks;
    const std::ptrdiff_t past = static_cast<std::ptrdiff_t>(superblock + kAhead - superblocks) * kSuperblock;
    const std::uint8_t* ahead[2] = {inside ? a + kAhead * kSuperblock : next.a + past,
                                    inside ? b + kAhead * kSuperblock : next.b + past};
    for (int band = 0; band < 2; band++)
      _mm_prefetch(reinterpret_cast<const char*>(ahead[band]), _MM_HINT_T0);
    for (int k = 0; k < kBlocks; k++) {
      const std::size_t block = static_cast<std::size_t>(superblock) * kBlocks + k;
      const std::int8_t* q = x.q + block * M * P * kBlock;
      const std::int32_t* correction = x.correction + block * M;
      const float* unit = x.unit + block * M;
      for (int band = 0; band < 2; band++) {
        const std::uint8_t* codes = (band ? b : a) + kScaleBytes + k * kBlockBytes;
        const std::uint8_t* bytes = (band ? b : a) + k * kBand;
        MOET_HIDE(codes);
        MOET_UNROLL for (int line = 0; line < 4; line++)
            _mm_prefetch(reinterpret_cast<const char*>(ahead[band]) + kScaleBytes + k * kBlockBytes + line * 64,
                         _MM_HINT_T0);
        for (int half = 0; half < 2; half++) {
          float* sums = out + band * M * kBand + half * 8;
          MOET_HIDE(sums);
          MOET_HIDE(q);
          MOET_HIDE(correction);
          MOET_HIDE(unit);
          __m256i weight[8];
          MOET_UNROLL for (int quarter = 0; quarter < 4; quarter++) {
            const __m256i word = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + quarter * 64 + half * 32));
            weight[2 * quarter] = _mm256_shuffle_epi8(twice, _mm256_and_si256(word, low));
            weight[2 * quarter + 1] = _mm256_shuffle_epi8(twice, _mm256_and_si256(_mm256_srli_epi16(word, 4), low));
          }
          const __m256 scale = scales(bytes + half * 8);
          MOET_UNROLL for (int m = 0; m < M; m++) {
            __m256i part[P];
            MOET_UNROLL for (int p = 0; p < P; p++) {
              __m256i dot[8];
              MOET_UNROLL for (int i = 0; i < 8; i++) {
                std::int32_t four;
                std::memcpy(&four, q + (m * P + p) * kBlock + i * 4, 4);
                dot[i] = _mm256_maddubs_epi16(weight[i], _mm256_set1_epi32(four));
              }
              // At most 8 products of 24 and 128: 24576.
              const __m256i first = _mm256_add_epi16(_mm256_add_epi16(dot[0], dot[1]), _mm256_add_epi16(dot[2], dot[3]));
              const __m256i second =
                  _mm256_add_epi16(_mm256_add_epi16(dot[4], dot[5]), _mm256_add_epi16(dot[6], dot[7]));
              part[p] = _mm256_add_epi32(_mm256_madd_epi16(first, one), _mm256_madd_epi16(second, one));
            }
            __m256i sum = P == 2 ? _mm256_add_epi32(_mm256_slli_epi32(part[0], 8), part[P - 1]) : part[0];
            sum = _mm256_add_epi32(sum, _mm256_set1_epi32(correction[m]));
            const __m256 worth = _mm256_mul_ps(scale, _mm256_broadcast_ss(unit + m));
            float* place = sums + m * kBand;
            _mm256_storeu_ps(place, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), worth, _mm256_loadu_ps(place)));
          }
        }
      }
    }
  }
}

inline __m256i in_order(__m256i packed) { return _mm256_permute4x64_epi64(packed, 0xd8); }

// As `quantize`, 8 or 16 values at a time.
void quantize_wide(const std::uint16_t* values, int parts, std::int8_t* q, std::int32_t* correction, float* unit) {
  const __m256i word[2] = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values)),
                           _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 16))};
  const __m256i magnitude = _mm256_set1_epi16(0x7fff);
  const __m256i most = _mm256_max_epu16(_mm256_and_si256(word[0], magnitude), _mm256_and_si256(word[1], magnitude));
  const __m128i half = _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  // The instruction finds the least: of what is left to 0xffff.
  const int largest = 0xffff - _mm_extract_epi16(_mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1))), 0);
  if (largest >= 0x7f80) return quantize(values, parts, q, correction, unit);
  const int bits = parts == 2 ? 14 : 6, exponent = largest >> 7 < 16 ? 16 : largest >> 7;
  const __m256 scale = _mm256_set1_ps(bits_to_float(static_cast<std::uint32_t>(254 + bits - exponent) << 23));
  const __m256 top = _mm256_set1_ps(parts == 2 ? 32639.f : 127.f), bottom = _mm256_set1_ps(parts == 2 ? -32639.f : -127.f);
  __m256i whole[2];
  for (int i = 0; i < 2; i++) {
    __m256i quarter[2];
    for (int j = 0; j < 2; j++) {
      const __m128i eight = j ? _mm256_extracti128_si256(word[i], 1) : _mm256_castsi256_si128(word[i]);
      const __m256 f = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16)), scale);
      quarter[j] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(f, top), bottom));
    }
    whole[i] = in_order(_mm256_packs_epi32(quarter[0], quarter[1]));
  }
  const __m256i one = _mm256_set1_epi16(1);
  const __m256i sums = _mm256_add_epi32(_mm256_madd_epi16(whole[0], one), _mm256_madd_epi16(whole[1], one));
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  *correction = -12 * _mm_cvtsi128_si32(sum);
  *unit = bits_to_float(static_cast<std::uint32_t>(exponent - bits - 1) << 23);
  const __m256i apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  __m256i low[2], high[2];
  for (int i = 0; i < 2; i++) {
    low[i] = _mm256_srai_epi16(_mm256_slli_epi16(whole[i], 8), 8);
    high[i] = _mm256_srai_epi16(_mm256_sub_epi16(whole[i], low[i]), 8);
  }
  const __m256i lows = _mm256_shuffle_epi8(in_order(_mm256_packs_epi16(low[0], low[1])), apart);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + (parts - 1) * kBlock), lows);
  if (parts == 2) {
    const __m256i highs = _mm256_shuffle_epi8(in_order(_mm256_packs_epi16(high[0], high[1])), apart);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), highs);
  }
}

}  // namespace

const Table& avx2_table() {
  static constexpr Table table = {
      {{}, MOET_KERNELS(rows, 1), MOET_KERNELS(rows, 2)}, quantize_wide, swiglu, add_scaled, store};
  return table;
}

}  // namespace moet::cpu
