// q . key over 128 k, for 16 keys (operand A) and 8 heads (operand B), in two builds. sm_120a multiplies E4M3, and E2M1 with
// UE8M0 scales, as they lie in memory. Elsewhere E4M3 becomes fp16, and E2M1 times its scale bf16, which have all of those
// values; only what is 2^128 and more, under scales of 2^126 and 2^127, becomes infinite.
//
// Raw fragments are what ldmatrix gives of rows of bytes (g = lane / 4, t = lane % 4), a step being 32 bytes of a row:
//   keys[step][4]: bytes 4t..4t+3 of row g; of row g+8; bytes 16+4t.. of row g; of row g+8.
//   heads[step][2]: bytes 4t..4t+3 of head g; bytes 16+4t...
// Widened, the order of k inside 32 differs from that in memory, for both operands alike.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/mma_policy.cuh"

namespace moet::paged_mqa_logits {

enum class Format { e4m3, e2m1 };

__host__ __device__ constexpr int row_bytes(Format format) { return format == Format::e4m3 ? 128 : 64; }
__host__ __device__ constexpr int steps(Format format) { return row_bytes(format) / 32; }
// Words a lane of prepared heads and keys; `native`: on an architecture that multiplies the format itself.
__host__ __device__ constexpr int head_words(Format format, bool native) { return native ? steps(format) * 2 : 16; }
__host__ __device__ constexpr int key_words(Format format, bool native) { return native ? steps(format) * 4 : 32; }
// Words of scales that 32 heads need beside their fragments.
__host__ __device__ constexpr int scale_words(Format format, bool native) { return format == Format::e2m1 && native ? 32 : 0; }

#ifdef MOET_BLOCK_SCALED_MMA
constexpr bool kNative = true;
#else
constexpr bool kNative = false;
#endif

// The two numbers of the lower or upper two E4M3 of a word as fp16.
template <int HALF>
__device__ __forceinline__ uint32_t e4m3_pair(uint32_t word) {
    uint32_t v;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(v) : "h"((uint16_t)(word >> (16 * HALF))));
    return v;
}

// The scales of 32 values in one word, UE8M0 byte BYTE of another, as two equal bf16; 255 is NaN.
template <int BYTE>
__device__ __forceinline__ uint32_t scale_pair(uint32_t word) {
    const uint32_t exponent = __byte_perm(word, 0, 0x4040 | BYTE << 8 | BYTE) << 7;
    const uint32_t bits = exponent ? exponent : 0x00400040u;
    return exponent == 0x7f807f80u ? 0x7fc07fc0u : bits;
}

__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
    uint32_t v;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}

template <int LEFT>
__device__ __forceinline__ uint32_t shifted(uint32_t word) {
    if constexpr (LEFT >= 0) return word << LEFT;
    return word >> (LEFT < 0 ? -LEFT : 0);
}

// E2M1 number I and I + 4 of a word, times `scale`, as bf16. Exponent and mantissa go to the bits that match, which makes
// numbers 2^-126 times as large: subnormals of one are subnormals of the other.
template <int I>
__device__ __forceinline__ uint32_t e2m1_pair(uint32_t word, uint32_t scale) {
    const uint32_t small = (shifted<12 - 4 * I>(word) & 0x80008000u) | (shifted<6 - 4 * I>(word) & 0x01c001c0u);
    return multiply_pairs(multiply_pairs(small, 0x7e807e80u), scale);
}

template <Format FORMAT>
struct Keys {
    uint32_t words[key_words(FORMAT, kNative)];
};
template <Format FORMAT>
struct Heads {
    uint32_t words[head_words(FORMAT, kNative)];
};

// Of a tile; `word`: the scales of E2M1 of row g + 8 (t % 2).
template <Format FORMAT>
__device__ __forceinline__ Keys<FORMAT> prepare_keys(const uint32_t (&raw)[steps(FORMAT)][4], uint32_t word) {
    Keys<FORMAT> keys;
    if constexpr (kNative) {
#pragma unroll
        for (int i = 0; i < steps(FORMAT) * 4; i++) keys.words[i] = raw[i / 4][i % 4];
    } else if constexpr (FORMAT == Format::e4m3) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t* const at = keys.words + i / 2 * 4 + i % 2;
            at[0] = e4m3_pair<0>(raw[i / 4][i % 4]);
            at[2] = e4m3_pair<1>(raw[i / 4][i % 4]);
        }
    } else {
        const int quad = threadIdx.x & 28;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t mine = __shfl_sync(~0u, word, quad + h);
            const uint32_t scales[4] = {scale_pair<0>(mine), scale_pair<1>(mine), scale_pair<2>(mine), scale_pair<3>(mine)};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t* const at = keys.words + k * 8 + h;
                const uint32_t values = raw[k / 2][k % 2 * 2 + h];
                at[0] = e2m1_pair<0>(values, scales[k]);
                at[2] = e2m1_pair<1>(values, scales[k]);
                at[4] = e2m1_pair<2>(values, scales[k]);
                at[6] = e2m1_pair<3>(values, scales[k]);
            }
        }
    }
    return keys;
}

// Of a tile; `word`: the scales of E2M1 of head g.
template <Format FORMAT>
__device__ __forceinline__ Heads<FORMAT> prepare_heads(const uint32_t (&raw)[steps(FORMAT)][2], uint32_t word) {
    Heads<FORMAT> heads;
    if constexpr (kNative) {
#pragma unroll
        for (int i = 0; i < steps(FORMAT) * 2; i++) heads.words[i] = raw[i / 2][i % 2];
    } else if constexpr (FORMAT == Format::e4m3) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            heads.words[2 * i] = e4m3_pair<0>(raw[i / 2][i % 2]);
            heads.words[2 * i + 1] = e4m3_pair<1>(raw[i / 2][i % 2]);
        }
    } else {
        const uint32_t scales[4] = {scale_pair<0>(word), scale_pair<1>(word), scale_pair<2>(word), scale_pair<3>(word)};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t values = raw[k / 2][k % 2];
            heads.words[4 * k] = e2m1_pair<0>(values, scales[k]);
            heads.words[4 * k + 1] = e2m1_pair<1>(values, scales[k]);
            heads.words[4 * k + 2] = e2m1_pair<2>(values, scales[k]);
            heads.words[4 * k + 3] = e2m1_pair<3>(values, scales[k]);
        }
    }
    return heads;
}

#ifdef MOET_BLOCK_SCALED_MMA
__device__ __forceinline__ void mma_e4m3(float (&d)[4], const uint32_t* a, const uint32_t* b) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
// Over 16 k of fp16, or of bf16 where the format is E2M1.
template <Format FORMAT>
__device__ __forceinline__ void mma_wide(float (&d)[4], const uint32_t* a, const uint32_t* b) {
    if constexpr (FORMAT == Format::e4m3)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#ifdef MOET_BLOCK_SCALED_MMA
// BYTE: the first of the two bytes of the words that are the scales of these 64 k.
template <int BYTE>
__device__ __forceinline__ void mma_e2m1(float (&d)[4], const uint32_t* a, const uint32_t* b, uint32_t sa, uint32_t sb) {
    asm("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
        "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3},{%10},{%11,%12},{%13},{%14,%15};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa), "n"(BYTE), "n"(0), "r"(sb), "n"(BYTE),
          "n"(0));
}
#endif

// d = q . key: d[0], d[1] of key g and heads 2t, 2t+1; d[2], d[3] of key g+8. The words of scales are those that the
// fragments were prepared with.
template <Format FORMAT>
__device__ __forceinline__ void multiply(float (&d)[4], const Keys<FORMAT>& keys, const Heads<FORMAT>& heads,
                                         [[maybe_unused]] uint32_t key_scales, [[maybe_unused]] uint32_t head_scales) {
#pragma unroll
    for (int i = 0; i < 4; i++) d[i] = 0.f;
#ifdef MOET_BLOCK_SCALED_MMA
    if constexpr (FORMAT == Format::e4m3) {
#pragma unroll
        for (int s = 0; s < 4; s++) mma_e4m3(d, keys.words + s * 4, heads.words + s * 2);
    } else {
        mma_e2m1<0>(d, keys.words, heads.words, key_scales, head_scales);
        mma_e2m1<2>(d, keys.words + 4, heads.words + 2, key_scales, head_scales);
    }
#else
#pragma unroll
    for (int s = 0; s < 8; s++) mma_wide<FORMAT>(d, keys.words + s * 4, heads.words + s * 2);
#endif
}

}  // namespace moet::paged_mqa_logits
