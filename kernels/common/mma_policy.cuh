// One operand contract for the block-scaled MXFP8 mma (m16n8k32, E4M3 by E4M3, one UE8M0 scale a row and 32 k), two
// builds: sm_120a has the instruction; elsewhere a plain mma makes the products, and the scales follow in fp32.
//
// Fragments and scales are prepared once for all mma that share them. Where the instruction is lacking that is most of
// the work: E4M3 becomes f16, which is exact, and UE8M0 becomes fp32.
//
// Operands are those of mma.sync m16n8k32 (g = lane / 4, t = lane % 4; mma_lanes.py has them in numpy):
//   a[0] row g, k 4t..4t+3;  a[1] row g+8;  a[2], a[3] the same, k+16.   b[0] column g, k 4t..4t+3;  b[1] k+16.
//   d[0], d[1] row g, columns 2t, 2t+1;  d[2], d[3] row g+8.
// A scale word is 32 bits: the UE8M0 bytes of four k32 steps, the first in the lowest byte. The instruction takes that of
// row lane / 4 + 8 h from the lanes with lane % 2 == h, and that of column n from lane 4 n.
//
// The builds agree but for the order of roundings, which are of fp32 in both. Elsewhere, a sum whose scales multiply to
// less than 2^-149 counts as zero, and a scale of NaN (byte 255) makes infinities as well as NaN: never a finite number.
// The order of roundings is that of this header in every kernel, so that kernels which share it agree in every bit.
#pragma once
#include <cstdint>

#include "kernels/common/shared.cuh"

namespace moet {

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200
#define MOET_BLOCK_SCALED_MMA 1
#elif defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == 1200
#define MOET_BLOCK_SCALED_MMA 1
#endif

// Byte BYTE of a scale word as a number: 2^(byte - 127), of which byte 0 is a subnormal, and byte 255 infinity.
template <int BYTE>
__device__ __forceinline__ float ue8m0(uint32_t word) {
    const uint32_t exponent = (BYTE == 3 ? word >> 1 : word << (23 - 8 * BYTE)) & 0x7f800000u;
    return __uint_as_float(max(exponent, 0x00400000u));
}

#ifdef MOET_BLOCK_SCALED_MMA

struct PreparedA {
    uint32_t r[4];
};
struct PreparedB {
    uint32_t r[2];
};
struct PreparedScalesA {
    uint32_t word;
};
struct PreparedScalesB {
    uint32_t word;
};

#else

struct PreparedA {
    uint32_t r[8];
};
struct PreparedB {
    uint32_t r[4];
};
struct PreparedScalesA {
    uint32_t low, high;
};
struct PreparedScalesB {
    float4 even, odd;
};

// The four E4M3 of a word as f16, in order.
__device__ __forceinline__ void e4m3_to_f16(uint32_t word, uint32_t& first, uint32_t& second) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(first), "=r"(second)
        : "r"(word));
}

// d += a b over 16 k.
__device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif

// Bytes of shared memory that the scales of 8 columns over 128 k take, by the architecture that runs.
constexpr int scale_table_bytes(bool block_scaled) { return block_scaled ? 32 : 128; }

__device__ __forceinline__ PreparedA prepare_a(const uint32_t (&a)[4]) {
    PreparedA result;
#ifdef MOET_BLOCK_SCALED_MMA
#pragma unroll
    for (int i = 0; i < 4; i++) result.r[i] = a[i];
#else
    // The products of a sum may be in any order, if a and b agree: a word's bytes 0, 1 take the places of k 2t, 2t+1, and
    // its bytes 2, 3 those of k 2t+8, 2t+9.
    e4m3_to_f16(a[0], result.r[0], result.r[2]);
    e4m3_to_f16(a[1], result.r[1], result.r[3]);
    e4m3_to_f16(a[2], result.r[4], result.r[6]);
    e4m3_to_f16(a[3], result.r[5], result.r[7]);
#endif
    return result;
}

__device__ __forceinline__ PreparedB prepare_b(uint32_t b0, uint32_t b1) {
    PreparedB result;
#ifdef MOET_BLOCK_SCALED_MMA
    result.r[0] = b0, result.r[1] = b1;
#else
    e4m3_to_f16(b0, result.r[0], result.r[1]);
    e4m3_to_f16(b1, result.r[2], result.r[3]);
#endif
    return result;
}

// Scales of 16 rows over 128 k: words[row] is at `words` in shared memory.
__device__ __forceinline__ PreparedScalesA load_scales_a(uint32_t words) {
    const int lane = threadIdx.x & 31, g = lane >> 2;
#ifdef MOET_BLOCK_SCALED_MMA
    return {load_shared(words + (g + 8 * (lane & 1)) * 4)};
#else
    return {load_shared(words + g * 4), load_shared(words + (g + 8) * 4)};
#endif
}

// Writes the table of a warp's 8 columns over 128 k, from each lane's word of column lane / 4; __syncwarp() before it is
// read.
__device__ __forceinline__ void store_scales_b(uint32_t table, uint32_t word) {
    const int lane = threadIdx.x & 31;
#ifdef MOET_BLOCK_SCALED_MMA
    if ((lane & 3) == 0) store_shared(table + (lane >> 2) * 4, word);
#else
    store_shared(table + lane * 4, __float_as_uint(ue8m0<0>(word >> (8 * (lane & 3)))));
#endif
}

__device__ __forceinline__ PreparedScalesB load_scales_b(uint32_t table) {
    const int lane = threadIdx.x & 31;
#ifdef MOET_BLOCK_SCALED_MMA
    return {load_shared(table + (lane >> 2) * 4)};
#else
    return {load_shared_floats(table + (lane & 3) * 32), load_shared_floats(table + (lane & 3) * 32 + 16)};
#endif
}

// d += (a scaled) * (b scaled) over 32 k; STEP counts them in 128 k.
template <int STEP>
__device__ __forceinline__ void mma_mx(float (&d)[4], const PreparedA& a, const PreparedB& b, const PreparedScalesA& sa,
                                       const PreparedScalesB& sb) {
#ifdef MOET_BLOCK_SCALED_MMA
    asm("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3},{%10},{%11,%12},{%13},{%14,%15};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]), "r"(sa.word), "n"(STEP), "n"(0),
          "r"(sb.word), "n"(STEP), "n"(0));
#else
    float p[4] = {0.f, 0.f, 0.f, 0.f};
    mma_f16(p, a.r[0], a.r[1], a.r[2], a.r[3], b.r[0], b.r[1]);
    mma_f16(p, a.r[4], a.r[5], a.r[6], a.r[7], b.r[2], b.r[3]);
    const float low = ue8m0<STEP>(sa.low), high = ue8m0<STEP>(sa.high);
    const float even = STEP == 0 ? sb.even.x : STEP == 1 ? sb.even.y : STEP == 2 ? sb.even.z : sb.even.w;
    const float odd = STEP == 0 ? sb.odd.x : STEP == 1 ? sb.odd.y : STEP == 2 ? sb.odd.z : sb.odd.w;
    // The scales' product first: a sum times one of them overflows where a huge scale meets a tiny one.
    d[0] = fmaf(p[0], low * even, d[0]);
    d[1] = fmaf(p[1], low * odd, d[1]);
    d[2] = fmaf(p[2], high * even, d[2]);
    d[3] = fmaf(p[3], high * odd, d[3]);
#endif
}

}  // namespace moet
