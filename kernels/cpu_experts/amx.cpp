// AMX: a block of 32 inputs is one tdpbssd for each band, 16 rows by all tokens and parts at once.
//
// The tile of weights is 8 decoded vectors as they are, that of activations the parts of all tokens as they lie. Three
// steps of two blocks are under way at a time: one is decoded, one multiplied, one scaled and added.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu_experts/avx512.h"
#include "kernels/cpu_experts/kernel.h"

namespace moet::cpu {
namespace {

constexpr int kStep = 2;

// g++ 12's intrinsics do not say that a load reads memory, nor that the configuration is more than a pointer: what was
// stored there could come too late, or not at all.
#define MOET_CONFIGURE(config) asm volatile("ldtilecfg %0" ::"m"(config))
#define MOET_LOAD(tile, from, stride, bytes)                                            \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(std::int64_t{stride}), \
               "m"(*reinterpret_cast<const char(*)[bytes]>(from)))
#define MOET_STORE(tile, to, bytes)                                                                 \
  asm volatile("tilestored %%tmm" #tile ", (%1,%2,1)" : "=m"(*reinterpret_cast<char(*)[bytes]>(to)) \
               : "r"(to), "r"(std::int64_t{64}))

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

struct alignas(64) Decoded {
  std::int8_t tile[kStep][2][8 * 64];
};

template <int M, int P>
struct alignas(64) Dots {
  std::int32_t dot[kStep][2][M * P][kBand];
};

inline void decode(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* const* ahead, int k, Decoded& to) {
  const __m512i twice =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  MOET_UNROLL for (int i = 0; i < kStep; i++) MOET_UNROLL for (int band = 0; band < 2; band++) {
    const int from = kScaleBytes + (k + i) * kBlockBytes;
    MOET_UNROLL for (int quarter = 0; quarter < 4; quarter++) {
      fetch(ahead[band] + from + quarter * 64);
      const __m512i word = _mm512_load_si512((band ? b : a) + from + quarter * 64);
      _mm512_store_si512(to.tile[i][band] + quarter * 128, _mm512_permutexvar_epi8(word, twice));
      _mm512_store_si512(to.tile[i][band] + quarter * 128 + 64,
                         _mm512_permutexvar_epi8(_mm512_srli_epi16(word, 4), twice));
    }
  }
}

template <int M, int P>
inline void multiply(const std::int8_t* q, const Decoded& from) {
  constexpr int kBytes = M * P * kBlock;
  MOET_LOAD(6, from.tile[0][0], 64, 512);
  MOET_LOAD(4, q, kBlock, kBytes);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 6);
  MOET_LOAD(7, from.tile[0][1], 64, 512);
  _tile_zero(1);
  _tile_dpbssd(1, 4, 7);
  MOET_LOAD(6, from.tile[1][0], 64, 512);
  MOET_LOAD(5, q + kBytes, kBlock, kBytes);
  _tile_zero(2);
  _tile_dpbssd(2, 5, 6);
  MOET_LOAD(7, from.tile[1][1], 64, 512);
  _tile_zero(3);
  _tile_dpbssd(3, 5, 7);
}

template <int M, int P>
inline void keep(Dots<M, P>& to) {
  constexpr int kBytes = M * P * 64;
  MOET_STORE(0, to.dot[0][0], kBytes);
  MOET_STORE(1, to.dot[0][1], kBytes);
  MOET_STORE(2, to.dot[1][0], kBytes);
  MOET_STORE(3, to.dot[1][1], kBytes);
}

template <int M, int P>
inline void add(const Dots<M, P>& dots, const std::uint8_t* a, const std::uint8_t* b, const float* unit,
                __m512 (&sum)[2][M]) {
  MOET_UNROLL for (int i = 0; i < kStep; i++) MOET_UNROLL for (int band = 0; band < 2; band++) {
    const __m512 scale = scales((band ? b : a) + i * kBand);
    MOET_UNROLL for (int m = 0; m < M; m++) {
      __m512i dot = _mm512_load_si512(dots.dot[i][band][m * P]);
      if (P == 2)
        dot = _mm512_add_epi32(_mm512_slli_epi32(dot, 8), _mm512_load_si512(dots.dot[i][band][m * P + P - 1]));
      sum[band][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, _mm512_set1_ps(unit[i * M + m])),
                                     sum[band][m]);
    }
  }
}

template <int M, int P>
void rows(const std::uint8_t* a, const std::uint8_t* b, int superblocks, const Activations& x, Next next, float* out) {
  TileConfig config;
  for (int tile = 0; tile < 8; tile++) {
    config.row_bytes[tile] = tile == 4 || tile == 5 ? kBlock : 64;
    config.rows[tile] = tile < 6 ? M * P : 8;
  }
  MOET_CONFIGURE(config);
  Decoded decoded[2];
  Dots<M, P> dots[2];
  __m512 sum[2][M];
  MOET_UNROLL for (int band = 0; band < 2; band++) MOET_UNROLL for (int m = 0; m < M; m++) sum[band][m] =
      _mm512_setzero_ps();

  const std::int8_t* q = x.q;
  const float* unit = x.unit;
  const std::uint8_t *old_a = a, *old_b = b;
  const std::uint8_t* ahead[2];
  const auto look = [&](int superblock) {
    const bool inside = superblock + kAhead < superblocks;
    const std::ptrdiff_t past = static_cast<std::ptrdiff_t>(superblock + kAhead - superblocks) * kSuperblock;
    ahead[0] = inside ? a + kAhead * kSuperblock : next.a + past;
    ahead[1] = inside ? b + kAhead * kSuperblock : next.b + past;
    fetch(ahead[0]);
    fetch(ahead[1]);
  };
  look(0);
  decode(a, b, ahead, 0, decoded[0]);
  for (int superblock = 0; superblock < superblocks; superblock++) {
    // The first half of this superblock is multiplied, its second decoded, the last of the one before added.
    multiply<M, P>(q, decoded[0]);
    decode(a, b, ahead, 2, decoded[1]);
    if (superblock) {
      add<M, P>(dots[1], old_a + 2 * kBand, old_b + 2 * kBand, unit, sum);
      unit += kStep * M;
    }
    keep<M, P>(dots[0]);
    q += kStep * M * P * kBlock;
    multiply<M, P>(q, decoded[1]);
    old_a = a;
    old_b = b;
    if (superblock + 1 < superblocks) {
      a += kSuperblock;
      b += kSuperblock;
      look(superblock + 1);
      decode(a, b, ahead, 0, decoded[0]);
    }
    add<M, P>(dots[0], old_a, old_b, unit, sum);
    unit += kStep * M;
    keep<M, P>(dots[1]);
    q += kStep * M * P * kBlock;
  }
  add<M, P>(dots[1], old_a + 2 * kBand, old_b + 2 * kBand, unit, sum);
  _tile_release();
  MOET_UNROLL for (int band = 0; band < 2; band++) MOET_UNROLL for (int m = 0; m < M; m++)
      _mm512_storeu_ps(out + (band * M + m) * kBand, sum[band][m]);
}

}  // namespace

const Table& amx_table() {
  static const Table table = [] {
    Table made = avx512_table();
    const Table amx = {{{}, MOET_KERNELS(rows, 1), MOET_KERNELS(rows, 2)}, nullptr, nullptr, nullptr, nullptr};
    std::memcpy(made.kernel, amx.kernel, sizeof made.kernel);
    return made;
  }();
  return table;
}

}  // namespace moet::cpu
