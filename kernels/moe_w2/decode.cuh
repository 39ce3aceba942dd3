// Codes to operand A of a mma over 32 k, and that mma, in two builds. sm_120a: E4M3 and the block-scaled instruction
// (mma_policy.cuh). Elsewhere bf16, which has every weight and every x with its scale: scales of codes are in the table that
// they look up, those of x are multiplied once an expert, and nothing follows the mma; FP4's follow it. What bf16 does not
// have is lost there: x of 2^128 and more, or of less than 2^-126; codes under a scale of 2^127 count as NaN, and 1 under one
// of 2^-127 as zero.
//
// The lane 4 g + t of a plane has weights of rows g and g + 8 (tile), and of k 16 half + 4 t + k4. Even k4 make one word of
// four E4M3, odd ones another: k 4t, 4t+2, 4t+16, 4t+18 take the places of k 4t .. 4t+3, the others those of 4t+16 .. 4t+19.
// In bf16 they are two words of two each. x is laid out alike.
#pragma once
#include <cstdint>

#include "kernels/common/mma_policy.cuh"

namespace moet::moe_w2 {

#ifdef MOET_BLOCK_SCALED_MMA
constexpr bool kNative = true;
#else
constexpr bool kNative = false;
#endif

// Columns of x: the instruction's eight, or as many as shared memory has room for in bf16.
__host__ __device__ constexpr int columns(bool native) { return native ? 8 : 4; }
constexpr int kColumns = columns(kNative);
// Shared memory for 32 k of a column: codes, or bf16; and for its scale.
__host__ __device__ constexpr int x_bytes(bool native) { return native ? 32 : 64; }
__host__ __device__ constexpr int x_scale_bytes(bool native) { return native ? 1 : 0; }
constexpr int kStepBytes = kColumns * x_bytes(kNative), kStepScaleBytes = kColumns * x_scale_bytes(kNative);
// Of a warp: what its stage's scales become.
__host__ __device__ constexpr int table_bytes(bool native) { return native ? 0 : 512; }

__device__ __forceinline__ uint2 load_shared_pair(uint32_t from) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ uint4 load_shared_quad(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_shared_byte(uint32_t from) {
    uint32_t v;
    asm volatile("ld.shared.u8 %0,[%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ void store_shared_byte(uint32_t to, uint32_t v) {
    asm volatile("st.shared.u8 [%0],%1;" ::"r"(to), "r"(v) : "memory");
}
__device__ __forceinline__ void store_shared_pair(uint32_t to, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0],{%1,%2};" ::"r"(to), "r"(v.x), "r"(v.y) : "memory");
}

// Bytes of (low, high), by the lower four nibbles of `which`: 0 to 7 each; with 8 more, the byte's sign eight times.
__device__ __forceinline__ uint32_t pick(uint32_t low, uint32_t high, uint32_t which) {
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(which));
    return v;
}
// A number that stays in a register: an operand of prmt that is no immediate would be moved into one at each use.
__device__ __forceinline__ uint32_t held(uint32_t v) {
    asm volatile("" : "+r"(v));
    return v;
}

// The nibbles of a word's even codes, and those of its odd ones.
struct Nibbles {
    uint32_t even, odd;

    __device__ __forceinline__ explicit Nibbles(uint32_t codes)
        : even(held(codes & 0x33333333u)), odd(held((codes >> 2) & 0x33333333u)) {}
};

#ifdef MOET_BLOCK_SCALED_MMA

// Codes 0 to 3 (-4, -1, 1, 4) and magnitudes 0 to 7 as E4M3.
struct Levels {
    uint32_t codes = held(0x4838b8c8u), small = held(0x3c383000u), large = held(0x4c484440u);
};

// Sums of 16 rows by 8 columns.
struct Sums {
    float d[4] = {};

    __device__ __forceinline__ void total(float (&v)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = d[i];
    }
};

// The scales of 16 rows over BLOCKS times 64 columns: bytes [k32][row] in shared memory.
template <int BLOCKS, bool DELTA>
struct RowScales {
    uint32_t bytes[BLOCKS * 2];

    __device__ __forceinline__ void load(uint32_t from, uint32_t, int lane) {
#pragma unroll
        for (int s = 0; s < BLOCKS * 2; s++) bytes[s] = load_shared_byte(from + s * 16 + (lane >> 2) + 8 * (lane & 1));
    }
    __device__ __forceinline__ void prepare(uint32_t, int) {}
};

__device__ __forceinline__ void multiply(Sums& sums, const PreparedA& a, uint32_t scale, uint32_t x, uint32_t x_scales,
                                         int step, int lane) {
    const uint2 words = load_shared_pair(x + step * kStepBytes + lane * 8);
    const uint32_t x_scale = load_shared_byte(x_scales + step * kStepScaleBytes + (lane >> 2));
    mma_mx<0>(sums.d, a, prepare_b(words.x, words.y), PreparedScalesA{scale}, PreparedScalesB{x_scale});
}

// sums += weights times x over 64 columns, number BLOCK of the stage: two words of codes a lane.
template <int BLOCK, int BLOCKS>
__device__ __forceinline__ void multiply(Sums& sums, uint2 codes, const RowScales<BLOCKS, false>& rows, const Levels& levels,
                                         uint32_t x, uint32_t x_scales, int step, int lane) {
    const Nibbles low(codes.x), high(codes.y);
#pragma unroll
    for (int k32 = 0; k32 < 2; k32++) {
        PreparedA a;
        a.r[0] = pick(levels.codes, 0, low.even >> (16 * k32)), a.r[1] = pick(levels.codes, 0, high.even >> (16 * k32));
        a.r[2] = pick(levels.codes, 0, low.odd >> (16 * k32)), a.r[3] = pick(levels.codes, 0, high.odd >> (16 * k32));
        multiply(sums, a, rows.bytes[BLOCK * 2 + k32], x, x_scales, step + k32, lane);
    }
}

// The same of four words of nibbles.
__device__ __forceinline__ void multiply(Sums& sums, uint4 nibbles, const RowScales<1, true>& rows, const Levels& levels,
                                         uint32_t x, uint32_t x_scales, int step, int lane) {
    const uint32_t words[2][2] = {{nibbles.x, nibbles.z}, {nibbles.y, nibbles.w}};
#pragma unroll
    for (int k32 = 0; k32 < 2; k32++) {
        PreparedA a;
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            const uint32_t word = words[k32][tile], magnitudes = held(word & 0x77777777u);
            const uint32_t first = pick(levels.small, levels.large, magnitudes);
            const uint32_t second = pick(levels.small, levels.large, magnitudes >> 16);
            a.r[tile] = pick(first, second, 0x6420) | ((word << 4) & 0x80808080u);
            a.r[tile + 2] = pick(first, second, 0x7531) | (word & 0x80808080u);
        }
        multiply(sums, a, rows.bytes[k32], x, x_scales, step + k32, lane);
    }
}

// Writes 32 columns of x, in eight words, and their scale.
__device__ __forceinline__ void store_x(uint32_t x, uint32_t x_scales, int step, int column, uint4 a, uint4 b, uint32_t scale) {
    const uint32_t first[4] = {a.x, a.y, a.z, a.w}, second[4] = {b.x, b.y, b.z, b.w};
    uint32_t v[8];
#pragma unroll
    for (int t = 0; t < 4; t++) v[2 * t] = pick(first[t], second[t], 0x6420), v[2 * t + 1] = pick(first[t], second[t], 0x7531);
    const uint32_t to = x + step * kStepBytes + column * 32;
    store_shared(to, make_uint4(v[0], v[1], v[2], v[3]));
    store_shared(to + 16, make_uint4(v[4], v[5], v[6], v[7]));
    store_shared_byte(x_scales + step * kStepScaleBytes + column, scale);
}

#else

// Magnitudes 0 to 7: upper and lower bytes of bf16.
struct Levels {
    uint32_t small_upper = held(0x3f3f3f00u), large_upper = held(0x40404040u);
    uint32_t small_lower = held(0xc0800000u), large_lower = held(0xc0804000u), sign = held(0x80808080u);
};

__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Sums of 16 rows by 8 columns, of even k4 and of odd.
struct Sums {
    float even[4] = {}, odd[4] = {};

    __device__ __forceinline__ void total(float (&v)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = even[i] + odd[i];
    }
};

// The scales of 16 rows over BLOCKS times 64 columns. Of codes: by row, the four levels' upper bytes of bf16, and the lower one
// that they share, in the warp's table. Of nibbles: the scales, in registers.
template <int BLOCKS, bool DELTA>
struct RowScales {
    uint32_t bytes[BLOCKS];  // of row lane % 16, k32 lane / 16 of each block
    uint32_t table;
    float values[BLOCKS];

    __device__ __forceinline__ void load(uint32_t from, uint32_t to, int lane) {
        table = to;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) bytes[b] = load_shared_byte(from + b * 32 + lane);
    }
    // Between two __syncwarp().
    __device__ __forceinline__ void prepare(uint32_t to, int lane) {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            if constexpr (DELTA) {
                values[b] = ue8m0<0>(bytes[b]);
            } else {
                const bool is_number = bytes[b] < 254;
                const uint32_t upper = (bytes[b] >> 1) * 0x01010101u + 0x01008081u, lower = bytes[b] << 7;
                const uint2 levels = is_number ? make_uint2(upper, lower) : make_uint2(0x7f7fffffu, 0xc0u);
                store_shared_pair(to + b * 256 + lane * 8, levels);
            }
        }
    }
};

// sums += weights times x over 64 columns, number BLOCK of the stage: two words of codes a lane.
template <int BLOCK, int BLOCKS>
__device__ __forceinline__ void multiply(Sums& sums, uint2 codes, const RowScales<BLOCKS, false>& rows, const Levels&,
                                         uint32_t x, uint32_t, int step, int lane) {
    const Nibbles words[2] = {Nibbles(codes.x), Nibbles(codes.y)};
#pragma unroll
    for (int k32 = 0; k32 < 2; k32++) {
        uint32_t even[4], odd[4];
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            const uint2 row = load_shared_pair(rows.table + BLOCK * 256 + k32 * 128 + tile * 64 + (lane >> 2) * 8);
            const uint32_t upper_even = pick(row.x, 0, words[tile].even >> (16 * k32));
            const uint32_t upper_odd = pick(row.x, 0, words[tile].odd >> (16 * k32));
            even[tile] = pick(upper_even, row.y, 0x1404), even[tile + 2] = pick(upper_even, row.y, 0x3424);
            odd[tile] = pick(upper_odd, row.y, 0x1404), odd[tile + 2] = pick(upper_odd, row.y, 0x3424);
        }
        const uint4 b = load_shared_quad(x + (step + k32) * kStepBytes + (lane & 15) * 16);
        mma_bf16(sums.even, even, b.x, b.y);
        mma_bf16(sums.odd, odd, b.z, b.w);
    }
}

// The same of four words of nibbles.
__device__ __forceinline__ void multiply(Sums& sums, uint4 nibbles, const RowScales<1, true>& rows, const Levels& levels,
                                         uint32_t x, uint32_t, int step, int lane) {
    const uint32_t words[2][2] = {{nibbles.x, nibbles.z}, {nibbles.y, nibbles.w}};
#pragma unroll
    for (int k32 = 0; k32 < 2; k32++) {
        uint32_t even[4], odd[4];
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            const uint32_t word = words[k32][tile], magnitudes = held(word & 0x77777777u);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t which = magnitudes >> (16 * half);
                const uint32_t signs = pick(levels.sign, levels.sign, word >> (16 * half)) << 1;
                const uint32_t upper = pick(levels.small_upper, levels.large_upper, which) | (signs & 0x80808080u);
                const uint32_t lower = pick(levels.small_lower, levels.large_lower, which);
                even[tile + 2 * half] = pick(lower, upper, 0x6240), odd[tile + 2 * half] = pick(lower, upper, 0x7351);
            }
        }
        const uint4 b = load_shared_quad(x + (step + k32) * kStepBytes + (lane & 15) * 16);
        float p[4] = {0.f, 0.f, 0.f, 0.f};
        mma_bf16(p, even, b.x, b.y);
        mma_bf16(p, odd, b.z, b.w);
        const float low = __shfl_sync(~0u, rows.values[0], k32 * 16 + (lane >> 2));
        const float high = __shfl_sync(~0u, rows.values[0], k32 * 16 + 8 + (lane >> 2));
        sums.even[0] = fmaf(p[0], low, sums.even[0]), sums.even[1] = fmaf(p[1], low, sums.even[1]);
        sums.even[2] = fmaf(p[2], high, sums.even[2]), sums.even[3] = fmaf(p[3], high, sums.even[3]);
    }
}

// Bytes FIRST and FIRST + 2 of four E4M3, times a scale, as bf16.
template <int FIRST>
__device__ __forceinline__ uint32_t scaled_pair(uint32_t codes, float scale) {
    uint32_t halves, pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pick(codes, 0, FIRST | (FIRST + 2) << 4)));
    float low, high;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(low), "=f"(high) : "r"(halves));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high * scale), "f"(low * scale));
    return pair;
}

// Writes 32 columns of x, in eight words, times their scale.
__device__ __forceinline__ void store_x(uint32_t x, uint32_t, int step, int column, uint4 a, uint4 b, uint32_t byte) {
    const uint32_t first[4] = {a.x, a.y, a.z, a.w}, second[4] = {b.x, b.y, b.z, b.w};
    const float scale = ue8m0<0>(byte);
    const uint32_t to = x + step * kStepBytes + column * 64;
#pragma unroll
    for (int t = 0; t < 4; t++)
        store_shared(to + t * 16, make_uint4(scaled_pair<0>(first[t], scale), scaled_pair<0>(second[t], scale),
                                             scaled_pair<1>(first[t], scale), scaled_pair<1>(second[t], scale)));
}

#endif

}  // namespace moet::moe_w2
