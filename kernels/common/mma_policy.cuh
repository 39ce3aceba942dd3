// One operand contract for the block-scaled MXFP8 mma (m16n8k32, E4M3 by E4M3, one UE8M0 scale a row and 32 k), two
// builds: sm_120a has the instruction; elsewhere a plain mma makes the products, and the scales follow in fp32.
//
// Operands are those of mma.sync m16n8k32 (g = lane / 4, t = lane % 4):
//   a[0] row g, k 4t..4t+3;  a[1] row g+8;  a[2], a[3] the same, k+16.   b[0] column g, k 4t..4t+3;  b[1] k+16.
//   d[0], d[1] row g, columns 2t, 2t+1;  d[2], d[3] row g+8.
// A scale word is 32 bits: the UE8M0 bytes of four k32 steps, the first in the lowest byte.
//   `a_word`: the lanes with lane % 2 == h hold the word of row lane / 4 + 8 h.
//   `b_word`: lane 4 n + TB holds the word of column n.
//
// The builds agree but for the order of roundings, which are of fp32 in both. Elsewhere, a sum whose scales multiply to less
// than 2^-149 counts as zero, and a scale of NaN (byte 255) makes infinities as well as NaN: never a finite number.
#pragma once
#include <cstdint>

namespace moet {

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200
#define MOET_BLOCK_SCALED_MMA 1
#elif defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == 1200
#define MOET_BLOCK_SCALED_MMA 1
#endif

// Scale words as the mma of this build wants them; prepared once a word, that is once every 128 k.
struct ScaleA {
    uint32_t low, high;
};
struct ScaleB {
    uint32_t even, odd;
};

__device__ __forceinline__ ScaleA prepare_a(uint32_t a_word) {
#ifdef MOET_BLOCK_SCALED_MMA
    return {a_word, 0u};
#else
    const int quad = threadIdx.x & 28;
    return {__shfl_sync(~0u, a_word, quad), __shfl_sync(~0u, a_word, quad + 1)};
#endif
}

template <int TB>
__device__ __forceinline__ ScaleB prepare_b(uint32_t b_word) {
#ifdef MOET_BLOCK_SCALED_MMA
    return {b_word, 0u};
#else
    const int column = (threadIdx.x & 3) * 2;
    return {__shfl_sync(~0u, b_word, column * 4 + TB), __shfl_sync(~0u, b_word, column * 4 + 4 + TB)};
#endif
}

// Byte BYTE of a scale word as a number: 2^(byte - 127), of which byte 0 is a subnormal, and byte 255 infinity.
template <int BYTE>
__device__ __forceinline__ float ue8m0(uint32_t word) {
    const uint32_t exponent = (BYTE == 3 ? word >> 1 : word << (23 - 8 * BYTE)) & 0x7f800000u;
    return __uint_as_float(max(exponent, 0x00400000u));
}

// d += (a scaled) * (b scaled) over 32 k; STEP is the byte of the words, TB as in prepare_b.
template <int STEP, int TB>
__device__ __forceinline__ void mma_mx(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ScaleA sa, ScaleB sb) {
#ifdef MOET_BLOCK_SCALED_MMA
    asm("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3},{%10},{%11,%12},{%13},{%14,%15};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa.low), "n"(STEP), "n"(0), "r"(sb.even),
          "n"(STEP), "n"(TB));
#else
    float p[4] = {0.f, 0.f, 0.f, 0.f};
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(p[0]), "+f"(p[1]), "+f"(p[2]), "+f"(p[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    const float low = ue8m0<STEP>(sa.low), high = ue8m0<STEP>(sa.high);
    const float even = ue8m0<STEP>(sb.even), odd = ue8m0<STEP>(sb.odd);
    // The scales' product first: a sum times one of them overflows where a huge scale meets a tiny one.
    d[0] = fmaf(p[0], low * even, d[0]);
    d[1] = fmaf(p[1], low * odd, d[1]);
    d[2] = fmaf(p[2], high * even, d[2]);
    d[3] = fmaf(p[3], high * odd, d[3]);
#endif
}

}  // namespace moet
