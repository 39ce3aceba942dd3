// 16 bytes of bf16, fp16 or fp32 as floats, and back with one rounding.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/common/vector.cuh"
#include "kernels/p2p_allreduce/launch.h"

namespace moet::p2p_allreduce {

template <Type TYPE>
struct Numbers {
    static constexpr int kCount = TYPE == Type::kFloat ? 4 : 8;
    float value[kCount];

    __device__ explicit Numbers(uint4 packed) {
        const uint32_t word[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (TYPE == Type::kFloat) {
                value[i] = __uint_as_float(word[i]);
            } else if constexpr (TYPE == Type::kBfloat16) {
                value[2 * i] = bf16_low(word[i]);
                value[2 * i + 1] = bf16_high(word[i]);
            } else {
                value[2 * i] = __half2float(__ushort_as_half(word[i] & 0xffff));
                value[2 * i + 1] = __half2float(__ushort_as_half(word[i] >> 16));
            }
        }
    }

    __device__ void add(const Numbers& other) {
#pragma unroll
        for (int i = 0; i < kCount; i++) value[i] += other.value[i];
    }

    __device__ uint4 packed() const {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (TYPE == Type::kFloat)
                word[i] = __float_as_uint(value[i]);
            else if constexpr (TYPE == Type::kBfloat16)
                word[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value[2 * i])) |
                          (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(value[2 * i + 1])) << 16;
            else
                word[i] = __half_as_ushort(__float2half_rn(value[2 * i])) |
                          (uint32_t)__half_as_ushort(__float2half_rn(value[2 * i + 1])) << 16;
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};

// The sum of the first `world` parts, in order.
template <Type TYPE>
__device__ __forceinline__ uint4 sum_of(const uint4 (&part)[kMostRanks], int world) {
    Numbers<TYPE> sum(part[0]);
#pragma unroll
    for (int r = 1; r < kMostRanks; r++)
        if (r < world) sum.add(Numbers<TYPE>(part[r]));
    return sum.packed();
}

}  // namespace moet::p2p_allreduce
