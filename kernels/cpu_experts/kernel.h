// What every instruction set has: the arithmetic of bands of rows, and of the values between the matrices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moet::cpu {

constexpr int kMaxTokens = 8;
// A superblock: 16 rows by 128 inputs (layout.py).
constexpr int kBand = 16, kSuperblock = 1088, kScaleBytes = 64, kBlock = 32, kBlocks = 4, kBlockBytes = 256;

// Activations of `tokens` tokens, in blocks of 32 inputs.
struct Activations {
  // [block][token][part][8 words]: word 2 q + s has, of inputs 8 q + s, + 2, + 4, + 6, one byte each. Two parts (the
  // high one first) make 16 bits, q = 256 * high + low; one is 8 bits.
  const std::int8_t* q;
  // [block][token]: -12 times the sum of the block, for those who add 12 to each weight.
  const std::int32_t* correction;
  // [block][token]: what half of q's unit is worth, a power of two; NaN for a block with a value that is not finite.
  const float* unit;
};

// Where the streams that are read go on; the first superblocks of these are fetched ahead.
struct Next {
  const std::uint8_t* a;
  const std::uint8_t* b;
};

// Two bands of 16 rows times all tokens: out [2][tokens][16].
using Kernel = void (*)(const std::uint8_t* a, const std::uint8_t* b, int superblocks, const Activations& x, Next next,
                        float* out);

struct Table {
  // By parts (1 or 2) and tokens (1 to 8).
  Kernel kernel[3][kMaxTokens + 1];
  // One block of 32 bfloat16 as Activations have it.
  void (*quantize)(const std::uint16_t* values, int parts, std::int8_t* q, std::int32_t* correction, float* unit);
  // h = silu(min(g, limit)) * clamp(u, -limit, limit), to bfloat16.
  void (*swiglu)(const float* gate, const float* up, int n, float limit, std::uint16_t* h);
  // sum += weight * y, in one rounding each.
  void (*add_scaled)(float weight, const float* y, int n, float* sum);
  // NaN becomes the one NaN; either may be null.
  void (*store)(const float* sum, int n, float* out32, std::uint16_t* out16);
};

enum Isa { kScalar, kAvx2, kAvx512, kAmx, kIsas };

const Table& scalar_table();
const Table& avx2_table();
const Table& avx512_table();
// Kernels alone; what lies between the matrices is avx512's.
const Table& amx_table();

// Superblocks that are fetched ahead of the one at hand; three were no faster on an Emerald Rapids, five slower.
constexpr int kAhead = 2;

}  // namespace moet::cpu

// One entry for each count of tokens.
#define MOET_KERNELS(function, parts)                                                                         \
  {nullptr,           function<1, parts>, function<2, parts>, function<3, parts>, function<4, parts>, \
   function<5, parts>, function<6, parts>, function<7, parts>, function<8, parts>}

// Hides where a pointer comes from, so that each access is base + displacement: g++ otherwise keeps one spilled pointer
// for each.
#define MOET_HIDE(pointer) asm("" : "+r"(pointer))
#define MOET_UNROLL _Pragma("GCC unroll 16")
