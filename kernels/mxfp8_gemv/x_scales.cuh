// The scales of x, in whichever layout they are.
#pragma once
#include "kernels/common/scale_layout.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/mxfp8_gemv/launch.h"
#include "kernels/mxfp8_gemv/split.h"

namespace moet::mxfp8_gemv {

// Where the scales of (row m of a group, chunk) lie: four bytes, or what is left of K.
__device__ __forceinline__ const uint8_t* x_scales(const Args& a, int m, int group, int chunk) {
    const uint8_t* const base = static_cast<const uint8_t*>(a.x_scale);
    if (a.x_swizzled) return base + scale_word<true>(m * a.G + group, chunk, a.K);
    return base + m * a.x_scale_row + group * a.x_scale_group + chunk * a.x_scale_chunk;
}

// A word of them. K is a multiple of 128 unless TAIL; `count` of the four scales are within K.
template <bool TAIL>
__device__ __forceinline__ uint32_t load_x_scales(const Args& a, int m, int group, int chunk, int count) {
    const uint8_t* const from = x_scales(a, m, group, chunk);
    return TAIL && !a.x_swizzled ? load_scales(from, count) : load_fresh_word(from);
}

}  // namespace moet::mxfp8_gemv
