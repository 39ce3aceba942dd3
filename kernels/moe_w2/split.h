// How the warps of a block share K. It follows from K alone, and with it the order of a sum.
#pragma once
#include <algorithm>

#include "kernels/moe_w2/launch.h"

namespace moet::moe_w2 {

constexpr int kMostWarps = 8;

// Warp w has the blocks of 64 columns from w `each` on, as many as there are.
struct Split {
    int warps, each;
};

// Of the splits that leave no warp idle, that of the least cost: an item costs a warp its stages, of two blocks each, and as
// much as one and a half for what comes once. More than ten blocks a warp only where eight warps would have more.
constexpr Split split_of(int K) {
    const int blocks = K / kUnitK, most = std::max(10, (blocks + 7) / 8);
    Split best{0, 0};
    int least = 0;
    for (int warps = std::min(blocks, 4); warps <= kMostWarps; warps++) {
        const int each = (blocks + warps - 1) / warps, cost = warps * ((each + 1) / 2 * 2 + 3);
        if ((warps - 1) * each >= blocks || each > most || (best.warps && cost >= least)) continue;
        best = {warps, each};
        least = cost;
    }
    return best;
}
static_assert([] {
    for (int K = kUnitK; K <= kMostK; K += kUnitK)
        if (!split_of(K).warps) return false;
    return true;
}());

}  // namespace moet::moe_w2
