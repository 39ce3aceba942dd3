// bf16 to E4M3 with one UE8M0 scale a group of columns.
#pragma once
#include <cstdint>

#include "kernels/common/encode.cuh"

namespace moet {

constexpr int kVector = 8;  // bf16 in 16 bytes
constexpr int kLeastScale = -33;  // exponent

// Quantizes the eight numbers of thread `thread`; GROUP / 8 neighbouring threads have a group. Every thread of the warp
// takes part. A group with a number that is not finite gets scale 255, which is NaN.
template <int GROUP>
__device__ __forceinline__ void quantize(uint4 eight, int thread, uint8_t* codes, uint8_t* scales) {
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) largest = max(largest, max(words[i] & 0x7fff, words[i] >> 16 & 0x7fff));
#pragma unroll
    for (int distance = GROUP / kVector / 2; distance; distance >>= 1)
        largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
    const uint32_t scale = scale_byte<kLeastScale>(largest);
    const float inverse = __uint_as_float(scale == 255 ? 0 : (254 - scale) << 23);
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = to_e4m3(__fmul_rn(bf16_low(words[i]), inverse), __fmul_rn(bf16_high(words[i]), inverse));
    reinterpret_cast<uint2*>(codes)[thread] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
    if (thread % (GROUP / kVector) == 0) scales[thread / (GROUP / kVector)] = scale;
}

}  // namespace moet
