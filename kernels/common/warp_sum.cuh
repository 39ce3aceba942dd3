// Sums over a warp. Every one adds in the same tree (distance 16, 8, 4, 2, 1), so that a value's bits do not depend on
// how many values are summed beside it.
#pragma once

namespace moet {

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) v += __shfl_xor_sync(~0u, v, distance);
    return v;
}

__host__ __device__ constexpr int power_of_two_from(int n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

// Sums COUNT (at most 32) values at once: while there are several, a lane gives half of its values away for the other
// half's partial sums. Returns the sum number index_of_sum<COUNT>(lane).
template <int COUNT>
__device__ __forceinline__ float warp_sums(const float (&values)[COUNT], int lane) {
    constexpr int kPadded = power_of_two_from(COUNT);
    static_assert(COUNT >= 1 && COUNT <= 32);
    float v[kPadded];
#pragma unroll
    for (int i = 0; i < kPadded; i++) v[i] = i < COUNT ? values[i] : 0.f;
    int distance = 16;
#pragma unroll
    for (int count = kPadded / 2; count; count /= 2, distance >>= 1) {
        const bool upper = lane & distance;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const float low = v[i], high = v[i + count];
            v[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, distance);
        }
    }
#pragma unroll
    for (; distance; distance >>= 1) v[0] += __shfl_xor_sync(~0u, v[0], distance);
    return v[0];
}

// Which of the sums a lane gets; lanes that get the same one are neighbours.
template <int COUNT>
__device__ __forceinline__ int index_of_sum(int lane) {
    return lane / (32 / power_of_two_from(COUNT));
}
// Whether a lane is the first of those.
template <int COUNT>
__device__ __forceinline__ bool first_of_sum(int lane) {
    return lane % (32 / power_of_two_from(COUNT)) == 0 && index_of_sum<COUNT>(lane) < COUNT;
}

}  // namespace moet
