// 16-byte loads, and what is in them.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace moet {

// Of memory that no kernel in flight writes: weights. Volatile, or the compiler moves it behind wait_for_prior().
__device__ __forceinline__ uint4 load_constant(const void* p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}

// Of memory that the kernel ahead may have written: volatile, so that it stays behind wait_for_prior().
__device__ __forceinline__ uint4 load_fresh(const void* p) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_fresh_word(const void* p) {
    uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// The two bf16 of a 32-bit word, exactly.
__device__ __forceinline__ float bf16_low(uint32_t v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float bf16_high(uint32_t v) { return __uint_as_float(v & 0xffff0000u); }

// sum + a . b over eight bf16, in order.
__device__ __forceinline__ float dot8(uint4 a, uint4 b, float sum) {
    const uint32_t aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(bf16_low(aw[i]), bf16_low(bw[i]), sum);
        sum = fmaf(bf16_high(aw[i]), bf16_high(bw[i]), sum);
    }
    return sum;
}

}  // namespace moet
