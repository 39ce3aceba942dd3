// What a thread does with its 8 neighbouring numbers of a row: to the bytes of a record, and back.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/encode.cuh"
#include "kernels/common/vector.cuh"

namespace moet::kv_record {

constexpr int kThreadDims = 8;

// Eight bf16, in pairs.
struct Eight {
    uint32_t words[4];

    __device__ __forceinline__ static Eight of(uint4 v) { return {{v.x, v.y, v.z, v.w}}; }
    __device__ __forceinline__ void store(__nv_bfloat16* to) const {
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    __device__ __forceinline__ float low(int pair) const { return bf16_low(words[pair]); }
    __device__ __forceinline__ float high(int pair) const { return bf16_high(words[pair]); }
    __device__ __forceinline__ void set(int pair, float low, float high) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
        words[pair] = *reinterpret_cast<const uint32_t*>(&both);
    }

    // The largest of the numbers of THREADS neighbours, as bf16 without its sign; NaN is above infinity, 0x7f80.
    template <int THREADS>
    __device__ __forceinline__ uint32_t largest() const {
        uint32_t pair = words[0] & 0x7fff7fff;
#pragma unroll
        for (int i = 1; i < 4; i++) pair = __vmaxu2(pair, words[i] & 0x7fff7fff);
        uint32_t most = max(pair & 0xffff, pair >> 16);
#pragma unroll
        for (int distance = 1; distance < THREADS; distance *= 2)
            most = max(most, __shfl_xor_sync(~0u, most, distance));
        return most;
    }
};

// The nearest E2M1 numbers to the numbers times a factor, two a byte: to nearest even, saturated, with their signs. Not
// the instruction, which sm_90 does not have: times 2^-14, the exponents of E2M1 are the lowest of fp16, subnormal ones
// too, and what is left is to round a mantissa to one bit, of two numbers at once.
//
// A number of 8 bits over a scale of 4 is half way between two of E2M1, or off by 1/256 of itself, which is more than
// fp16 can lose. So the factor need not be exact.
__device__ __forceinline__ uint32_t to_e2m1(const Eight& numbers, float factor) {
    const float scaled = __fmul_rn(factor, 0x1p-14f);
    uint32_t nibbles[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __half2 both = __floats2half2_rn(__fmul_rn(numbers.low(i), scaled), __fmul_rn(numbers.high(i), scaled));
        constexpr uint32_t kSix = 0x0e000e00;
        const uint32_t bits = __vminu2(*reinterpret_cast<const uint32_t*>(&both) & 0x7fff7fff, kSix);
        const uint32_t rounded = bits + 0x00ff00ff + (bits >> 9 & 0x00010001);
        nibbles[i] = (rounded >> 9 & 0x00070007) | (numbers.words[i] >> 12 & 0x00080008);
    }
    uint32_t first = nibbles[0] | nibbles[1] << 8, second = nibbles[2] | nibbles[3] << 8;
    first |= first >> 12, second |= second >> 12;
    return __byte_perm(first, second, 0x5410);
}

// MXFP8. Four neighbouring threads have a group.
__device__ __forceinline__ uint2 encode_mxfp8(const Eight& numbers, uint32_t& scale) {
    constexpr int kLeast = -13;
    const uint32_t largest = numbers.largest<4>();
    scale = scale_byte<kLeast>(largest);
    // A group with an infinity becomes zeros but for the infinities; one with a NaN, NaN.
    const float infinite = __uint_as_float(largest > 0x7f80 ? 0x7fffffff : 0);
    const float inverse = scale == 255 ? infinite : inverse_of(scale);
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = to_e4m3(__fmul_rn(numbers.low(i), inverse), __fmul_rn(numbers.high(i), inverse));
    return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

__device__ __forceinline__ float from_e4m3(uint32_t byte) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)byte));
    return __low2float(*reinterpret_cast<const __half2*>(&halves));
}

// FP4 with a scale of E4M3. Two neighbouring threads have a group.
__device__ __forceinline__ uint32_t encode_fp4(const Eight& numbers, uint32_t& scale) {
    const uint32_t largest = numbers.largest<2>();
    // The same code as that of largest / 6: where that is half way between two, so is this.
    const float wanted = __fmul_rn(__uint_as_float(largest << 16), 1 / 6.f);
    scale = to_e4m3(fminf(fmaxf(wanted, 0x1p-9f), 448.f), 0.f);
    const uint32_t codes = to_e2m1(numbers, __fdividef(1.f, from_e4m3(scale)));
    if (largest < 0x7f80) return codes;
    scale = 0x7f;
    return 0;
}

// MXFP4. Four neighbouring threads have a group.
__device__ __forceinline__ uint32_t encode_mxfp4(const Eight& numbers, uint32_t& scale) {
    constexpr int kLeast = -126;
    scale = scale_byte<kLeast, kLargestE2M1>(numbers.largest<4>());
    return scale == 255 ? 0 : to_e2m1(numbers, inverse_of(scale));
}

// The number of a UE8M0 byte: 0 is subnormal, 255 is NaN.
__device__ __forceinline__ float from_ue8m0(uint32_t byte) {
    return __uint_as_float(byte == 255 ? 0x7fffffff : byte == 0 ? 0x400000 : byte << 23);
}

__device__ __forceinline__ Eight decode_e4m3(uint2 codes, float scale) {
    const uint32_t words[2] = {codes.x, codes.y};
    Eight numbers;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t pair = words[i / 2] >> (16 * (i % 2));
        numbers.set(i, __fmul_rn(from_e4m3(pair & 0xff), scale), __fmul_rn(from_e4m3(pair >> 8 & 0xff), scale));
    }
    return numbers;
}

// As to_e2m1 has it, the other way and in fp32.
__device__ __forceinline__ float from_e2m1(uint32_t nibble) {
    const float magnitude = __fmul_rn(__uint_as_float((nibble & 7) << 22), 0x1p126f);
    return __uint_as_float(__float_as_uint(magnitude) | (nibble & 8) << 28);
}

__device__ __forceinline__ Eight decode_e2m1(uint32_t codes, float scale) {
    Eight numbers;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t pair = codes >> (8 * i);
        numbers.set(i, __fmul_rn(from_e2m1(pair), scale), __fmul_rn(from_e2m1(pair >> 4), scale));
    }
    return numbers;
}

}  // namespace moet::kv_record
