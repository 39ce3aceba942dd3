// AVX-512 with VBMI and VNNI: 16 rows to a vector, decoded by vpermb, products summed by vpdpbusd.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu_experts/avx512.h"
#include "kernels/cpu_experts/kernel.h"

namespace moet::cpu {
namespace {

#include "kernels/cpu_experts/between.inc"

// Sums in registers where these are enough for it.
template <int M>
struct Sums {
  static constexpr bool kRegisters = M <= 2;
  __m512 sum[2][kRegisters ? M : 1];
  float* out;

  explicit Sums(float* to) : out(to) {
    MOET_UNROLL for (int band = 0; band < 2; band++) MOET_UNROLL for (int m = 0; m < M; m++) {
      if constexpr (kRegisters)
        sum[band][m] = _mm512_setzero_ps();
      else
        _mm512_storeu_ps(out + (band * M + m) * kBand, _mm512_setzero_ps());
    }
  }
  void add(int band, int m, __m512i dot, __m512 worth) {
    if constexpr (kRegisters) {
      sum[band][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), worth, sum[band][m]);
    } else {
      float* place = out + (band * M + m) * kBand;
      _mm512_storeu_ps(place, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), worth, _mm512_loadu_ps(place)));
    }
  }
  void finish() {
    if constexpr (kRegisters)
      MOET_UNROLL for (int band = 0; band < 2; band++) MOET_UNROLL for (int m = 0; m < M; m++)
          _mm512_storeu_ps(out + (band * M + m) * kBand, sum[band][m]);
  }
};

template <int M, int P>
void rows(const std::uint8_t* a, const std::uint8_t* b, int superblocks, const Activations& x, Next next, float* out) {
  // Tokens at a time: each broadcast word serves both bands.
  constexpr int kTogether = P == 2 ? 2 : 4;
  const __m512i twice =
      _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  Sums<M> sums(out);
  const std::int8_t* q = x.q;
  const std::int32_t* correction = x.correction;
  const float* unit = x.unit;
  for (int superblock = 0; superblock < superblocks; superblock++, a += kSuperblock, b += kSuperblock) {
    const bool inside = superblock + kAhead < superblocks;
    const std::ptrdiff_t past = static_cast<std::ptrdiff_t>(superblock + kAhead - superblocks) * kSuperblock;
    const std::uint8_t* ahead[2] = {inside ? a + kAhead * kSuperblock : next.a + past,
                                    inside ? b + kAhead * kSuperblock : next.b + past};
    fetch(ahead[0]);
    fetch(ahead[1]);
    for (int k = 0; k < kBlocks; k++, q += M * P * kBlock, correction += M, unit += M) {
      MOET_HIDE(q);
      MOET_HIDE(correction);
      MOET_HIDE(unit);
      __m512i weight[2][8];
      MOET_UNROLL for (int band = 0; band < 2; band++) {
        const std::uint8_t* codes = (band ? b : a) + kScaleBytes + k * kBlockBytes;
        const std::uint8_t* line = ahead[band] + kScaleBytes + k * kBlockBytes;
        MOET_HIDE(codes);
        MOET_HIDE(line);
        MOET_UNROLL for (int quarter = 0; quarter < 4; quarter++) {
          fetch(line + quarter * 64);
          const __m512i word = _mm512_load_si512(codes + quarter * 64);
          weight[band][2 * quarter] = _mm512_permutexvar_epi8(word, twice);
          weight[band][2 * quarter + 1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(word, 4), twice);
        }
      }
      const __m512 scale[2] = {scales(a + k * kBand), scales(b + k * kBand)};
      MOET_UNROLL for (int m0 = 0; m0 < M; m0 += kTogether) {
        __m512i dot[2][P][kTogether];
        MOET_UNROLL for (int m = 0; m < kTogether; m++) if (m0 + m < M) MOET_UNROLL for (int band = 0; band < 2; band++) {
          dot[band][0][m] = _mm512_setzero_si512();
          dot[band][P - 1][m] = _mm512_set1_epi32(correction[m0 + m]);
        }
        MOET_UNROLL for (int i = 0; i < 8; i++) MOET_UNROLL for (int p = 0; p < P; p++)
            MOET_UNROLL for (int m = 0; m < kTogether; m++) if (m0 + m < M) {
          std::int32_t four;
          std::memcpy(&four, q + ((m0 + m) * P + p) * kBlock + i * 4, 4);
          __m512i word = _mm512_set1_epi32(four);
          asm("" : "+v"(word));
          dot[0][p][m] = _mm512_dpbusd_epi32(dot[0][p][m], weight[0][i], word);
          dot[1][p][m] = _mm512_dpbusd_epi32(dot[1][p][m], weight[1][i], word);
        }
        MOET_UNROLL for (int m = 0; m < kTogether; m++) if (m0 + m < M) {
          const __m512 half = _mm512_set1_ps(unit[m0 + m]);
          MOET_UNROLL for (int band = 0; band < 2; band++) {
            __m512i sum = dot[band][P - 1][m];
            if (P == 2) sum = _mm512_add_epi32(_mm512_slli_epi32(dot[band][0][m], 8), sum);
            sums.add(band, m0 + m, sum, _mm512_mul_ps(scale[band], half));
          }
        }
      }
    }
  }
  sums.finish();
}

}  // namespace

const Table& avx512_table() {
  // Quantizing 32 values is not faster with wider vectors.
  static const Table table = {
      {{}, MOET_KERNELS(rows, 1), MOET_KERNELS(rows, 2)}, avx2_table().quantize, swiglu, add_scaled, store};
  return table;
}

}  // namespace moet::cpu
