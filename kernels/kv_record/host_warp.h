// Enough of CUDA for flashinfer's cache writers to run on the host: a thread for each lane of a warp, and the
// intrinsics that they call. test_flashinfer.py includes it ahead of them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

using std::isfinite, std::isinf, std::isnan, std::signbit;

constexpr int kLanes = 32;

inline std::barrier<> warp(kLanes);
inline uint32_t told[kLanes];
inline thread_local uint3 threadIdx, blockIdx;

inline uint32_t __float_as_uint(float v) { return std::bit_cast<uint32_t>(v); }
inline float __uint_as_float(uint32_t v) { return std::bit_cast<float>(v); }
inline float __fdiv_rn(float a, float b) { return a / b; }

// What the lane `from` has; every lane takes part.
inline uint32_t exchange(uint32_t mine, int from) {
    told[threadIdx.x] = mine;
    warp.arrive_and_wait();
    const uint32_t result = told[from];
    warp.arrive_and_wait();
    return result;
}
template <typename T>
T __shfl_xor_sync(unsigned, T v, int distance) {
    static_assert(sizeof(T) == 4);
    return std::bit_cast<T>(exchange(std::bit_cast<uint32_t>(v), (int)threadIdx.x ^ distance));
}
inline int __any_sync(unsigned, int predicate) {
    uint32_t any = predicate != 0;
    for (int distance = 1; distance < kLanes; distance *= 2) any |= exchange(any, (int)threadIdx.x ^ distance);
    return (int)any;
}

namespace flashinfer::math {

// On a GPU this is the instruction cvt.rn.satfinite.e2m1x2.f32.
inline uint32_t fp32_vec_to_e2m1(float a, float b, float c, float d, float e, float f, float g, float h) {
    const float2 pairs[4] = {{a, b}, {c, d}, {e, f}, {g, h}};
    uint32_t codes = 0;
    for (int i = 0; i < 4; i++)
        codes |= (uint32_t)__nv_cvt_float2_to_fp4x2(pairs[i], __NV_E2M1, cudaRoundNearest) << (8 * i);
    return codes;
}

}  // namespace flashinfer::math

// Runs one warp a block, one block after another, on `blocks` blocks.
template <typename Kernel>
void run_warps(int blocks, Kernel kernel) {
    std::vector<std::jthread> lanes;
    for (int lane = 0; lane < kLanes; lane++)
        lanes.emplace_back([=] {
            threadIdx = {(unsigned)lane, 0, 0};
            for (int block = 0; block < blocks; block++) {
                blockIdx = {(unsigned)block, 0, 0};
                kernel();
            }
        });
}
