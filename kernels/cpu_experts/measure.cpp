#include "kernels/cpu_experts/measure.h"

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu_experts/kernel.h"

namespace moet::cpu {
namespace {

constexpr std::size_t kPiece = 256 * 1088;

#define MOET_TWELVE(instruction, r)                                                                                 \
  instruction " %%" r "12,%%" r "13,%%" r "0\n" instruction " %%" r "12,%%" r "13,%%" r "1\n" instruction " %%" r    \
  "12,%%" r "13,%%" r "2\n" instruction " %%" r "12,%%" r "13,%%" r "3\n" instruction " %%" r "12,%%" r "13,%%" r    \
  "4\n" instruction " %%" r "12,%%" r "13,%%" r "5\n" instruction " %%" r "12,%%" r "13,%%" r "6\n" instruction      \
  " %%" r "12,%%" r "13,%%" r "7\n" instruction " %%" r "12,%%" r "13,%%" r "8\n" instruction " %%" r "12,%%" r      \
  "13,%%" r "9\n" instruction " %%" r "12,%%" r "13,%%" r "10\n" instruction " %%" r "12,%%" r "13,%%" r "11\n"
#define MOET_CLOBBERED                                                                                               \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"

__attribute__((target("avx512f,avx512vnni"))) std::int64_t vpdpbusd(std::int64_t rounds) {
  asm volatile("vpxor %%xmm12,%%xmm12,%%xmm12\nvpxor %%xmm13,%%xmm13,%%xmm13" ::: MOET_CLOBBERED);
  for (std::int64_t i = 0; i < rounds; i++) asm volatile(MOET_TWELVE("vpdpbusd", "zmm")::: MOET_CLOBBERED);
  asm volatile("vzeroupper");
  return rounds * 12;
}

__attribute__((target("avx2"))) std::int64_t vpmaddubsw(std::int64_t rounds) {
  asm volatile("vpxor %%xmm12,%%xmm12,%%xmm12\nvpxor %%xmm13,%%xmm13,%%xmm13" ::: MOET_CLOBBERED);
  for (std::int64_t i = 0; i < rounds; i++) asm volatile(MOET_TWELVE("vpmaddubsw", "ymm")::: MOET_CLOBBERED);
  asm volatile("vzeroupper");
  return rounds * 12;
}

__attribute__((target("amx-tile,amx-int8"))) std::int64_t tdpbssd(int rows, std::int64_t rounds) {
  alignas(64) std::uint8_t config[64] = {1};
  for (int tile = 0; tile < 8; tile++) {
    const std::uint16_t bytes = tile == 5 ? 32 : 64;
    std::memcpy(config + 16 + 2 * tile, &bytes, 2);
    config[48 + tile] = tile == 6 ? 8 : static_cast<std::uint8_t>(rows);
  }
  asm volatile("ldtilecfg %0" ::"m"(config));
  _tile_zero(5);
  _tile_zero(6);
  for (std::int64_t i = 0; i < rounds; i++)
    asm volatile(
        "tdpbssd %tmm6,%tmm5,%tmm0\ntdpbssd %tmm6,%tmm5,%tmm1\ntdpbssd %tmm6,%tmm5,%tmm2\ntdpbssd %tmm6,%tmm5,%tmm3\n"
        "tdpbssd %tmm6,%tmm5,%tmm4");
  _tile_release();
  return rounds * 5;
}

}  // namespace

__attribute__((target("avx2"))) std::uint64_t read_share(const std::uint8_t* memory, std::size_t bytes, int thread,
                                                         int threads, int ahead) {
  __m256i sum[4] = {};
  for (std::size_t piece = thread; (piece + 1) * kPiece <= bytes; piece += threads) {
    const std::uint8_t* at = memory + piece * kPiece;
    for (const std::uint8_t* end = at + kPiece; at < end; at += 128) {
      if (ahead) {
        _mm_prefetch(reinterpret_cast<const char*>(at) + ahead, _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(at) + ahead + 64, _MM_HINT_T0);
      }
      for (int i = 0; i < 4; i++)
        sum[i] = _mm256_add_epi64(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * i)));
    }
  }
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0)) + _mm256_extract_epi64(all, 2);
}

std::int64_t dot_products(int isa, int rows, std::int64_t rounds) {
  if (isa == kAmx) return tdpbssd(rows, rounds);
  if (isa == kAvx512) return vpdpbusd(rounds);
  return vpmaddubsw(rounds);
}

}  // namespace moet::cpu
