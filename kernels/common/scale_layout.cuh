// Where the scales of an MXFP8 matrix lie; see scale_layouts.py.
#pragma once
#include <cstddef>
#include <cstdint>

namespace moet {

// Byte offset of the scales of (row, k 128 chunk .. 128 chunk + 127): four bytes, one aligned word where K is a multiple of
// 128 or the layout is F8_128x4.
template <bool SWIZZLED>
__device__ __forceinline__ size_t scale_word(int row, int chunk, int K) {
    if (SWIZZLED) return ((size_t)(row >> 7) * ((K + 127) >> 7) + chunk) * 512 + (row & 31) * 16 + ((row >> 5) & 3) * 4;
    return (size_t)row * (K >> 5) + chunk * 4;
}

// Up to four scales that are no aligned word.
__device__ __forceinline__ uint32_t load_scales(const uint8_t* p, int count) {
    uint32_t word = 0;
    for (int i = 0; i < count; i++) word |= (uint32_t)p[i] << (8 * i);
    return word;
}

}  // namespace moet
