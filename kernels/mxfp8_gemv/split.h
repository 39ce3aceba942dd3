// What K decides: who sums which k, and so the order of roundings; and how much is in flight.
#pragma once
#include <iterator>

#include "kernels/mxfp8_gemv/launch.h"

namespace moet::mxfp8_gemv {

constexpr int kChunk = 128;  // k that one 32-bit word of scales is for

// How many places the ring of a warp has, and how many blocks a multiprocessor should hold.
struct Depth {
    int stages, blocks;
};

// Ranges of `chunks` chunks, one a warp, cover K. A range is summed in order; the sums of two neighbours are added, and the
// pairs in order. Then, for up to 8 rows of x and for more: the depths by architecture, and whether x is kept prepared
// (mma_policy.cuh), which takes twice the registers where the block-scaled mma is lacking.
struct Split {
    int K, ranges, chunks;
    Depth sm_90[2], sm_120[2];
    bool prepared[2];
    int ahead[2];  // stages filled before x is read: in a plain and in a dependent launch
};
constexpr Split kSplits[] = {
    {8192, 8, 8, {{6, 1}, {4, 1}}, {{4, 1}, {4, 1}}, {true, false}, {1, 3}},
    {5120, 8, 5, {{5, 1}, {5, 1}}, {{2, 2}, {4, 1}}, {true, false}, {1, 2}},
    {4096, 8, 4, {{4, 1}, {4, 1}}, {{2, 2}, {3, 1}}, {true, true}, {1, 2}},
    {2304, 9, 2, {{4, 1}, {6, 1}}, {{2, 2}, {2, 2}}, {true, true}, {1, 2}},
    {2048, 8, 2, {{2, 2}, {4, 1}}, {{2, 2}, {2, 2}}, {true, true}, {1, 1}},
    {1280, 10, 1, {{2, 2}, {4, 1}}, {{2, 1}, {2, 1}}, {true, true}, {0, 1}},
    {1152, 9, 1, {{2, 3}, {4, 1}}, {{2, 2}, {2, 1}}, {true, true}, {0, 1}},
    {1024, 8, 1, {{2, 3}, {2, 2}}, {{2, 2}, {2, 2}}, {true, true}, {0, 1}},
    {576, 5, 1, {{5, 3}, {5, 3}}, {{3, 2}, {2, 2}}, {true, true}, {0, 2}},
    {288, 3, 1, {{3, 3}, {3, 3}}, {{3, 4}, {2, 4}}, {true, true}, {0, 2}},
};
constexpr int kSplitCount = std::size(kSplits);

constexpr bool covers(const Split& s) {
    const int chunks = s.ranges * s.chunks;
    return chunks * kChunk >= s.K && (chunks - 1) * kChunk < s.K && s.K % 32 == 0;
}
constexpr bool has_a_split(int k) {
    for (const Split& s : kSplits)
        if (s.K == k) return covers(s);
    return false;
}
constexpr bool all_have_splits() {
    for (const int k : kKs)
        if (!has_a_split(k)) return false;
    return kSplitCount == std::size(kKs);
}
static_assert(all_have_splits());

}  // namespace moet::mxfp8_gemv
