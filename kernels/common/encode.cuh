// bf16 groups to E4M3 or E2M1 with a UE8M0 scale, number by number.
#pragma once
#include <cstdint>

namespace moet {

// The largest number of a format is (1 + mantissa / 128) * 2^power.
struct Largest {
    int power, mantissa;
};
constexpr Largest kLargestE4M3{8, 0x60}, kLargestE2M1{2, 0x40};  // 448, 6

// The least power of two, 2^LEAST or more, by which `magnitude` (a bf16 without its sign, of the largest value) becomes
// no more than the format's largest number, as a UE8M0 byte; 255 when it is no finite number.
template <int LEAST, Largest LARGEST = kLargestE4M3>
__device__ __forceinline__ uint32_t scale_byte(uint32_t magnitude) {
    const int byte = (int)(magnitude >> 7) - LARGEST.power + ((magnitude & 0x7f) > LARGEST.mantissa);
    return magnitude >= 0x7f80 ? 255 : max(byte, 127 + LEAST);
}

// 1 / scale, for bytes from 0 to 253.
__device__ __forceinline__ float inverse_of(uint32_t byte) { return __uint_as_float((254 - byte) << 23); }

// Two E4M3 bytes, the first number in the lower one: to nearest even, saturated; NaN becomes 0x7f.
__device__ __forceinline__ uint32_t to_e4m3(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

}  // namespace moet
