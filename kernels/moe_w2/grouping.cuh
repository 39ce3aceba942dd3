// Which experts the rows chose, and the columns of each, worked out by every block for itself. Order comes from the pairs'
// numbers and bit masks, never from which thread was first.
#pragma once
#include <cstdint>

#include "kernels/common/vector.cuh"
#include "kernels/moe_w2/decode.cuh"
#include "kernels/moe_w2/launch.h"

namespace moet::moe_w2 {

constexpr int kPairWords = kMostPairs / 32;

// Bytes of 32 weights: a block's share of the items is a share of the bytes.
constexpr int kBaseCost = 9, kDeltaCost = 17;

// Pairs of one expert, as many as operand B has columns; more are several groups, which read the weights again.
struct Group {
    int slot, scale_slot;
    uint8_t columns[8];  // pairs
    uint8_t count, is_delta;
};

struct Grouping {
    alignas(16) int ids[kMostPairs];
    Group groups[kMostPairs];
    uint8_t where[kMostPairs];                        // the group that a pair is the first of
    uint32_t firsts[kPairWords], deltas[kPairWords];  // pairs that are, and those whose group is of the delta
    uint32_t absent[kPairWords];                      // pairs whose result is zero
    uint32_t missing[kPairWords];                     // those of them that have an expert
    int begin, end;                                   // items of this block: 16 rows of weights of a group
};

__device__ __forceinline__ int slot_of(const Weights& weights, int id, int E) {
    if (!weights.table || id < 0 || id >= E) return -1;
    const int slot = (int)load_fresh_word(weights.table + id);
    return slot >= 0 && slot < weights.slots ? slot : -1;
}

__device__ __forceinline__ int bits_in(const uint32_t (&words)[kPairWords], int below) {
    int count = 0;
#pragma unroll
    for (int w = 0; w < kPairWords; w++) {
        const int bits = below - 32 * w;
        count += __popc(bits >= 32 ? words[w] : bits > 0 ? words[w] & ((1u << bits) - 1) : 0u);
    }
    return count;
}

// Fills `s`; `tiles` are the items of a group. All threads of the block, of which there are as many as pairs at least; it ends
// with a barrier.
__device__ __forceinline__ void group_pairs(const Args& p, int tiles, Grouping& s) {
    const int pairs = p.M * p.top, lane = threadIdx.x & 31, i = threadIdx.x;
    const bool is_pair = i < kMostPairs;  // the same in a warp
    int id = -1, base = -1, delta = -1, rank = 0, count = 0, head = 0;
    if (is_pair) {
        id = i < pairs ? (int)load_fresh_word(p.ids + i) : -1;
        s.ids[i] = id;
        base = slot_of(p.base, id, p.E), delta = slot_of(p.delta, id, p.E);
        if (!p.delta_has_scales && base < 0) delta = -1;
    }
    if (i == 0) s.begin = s.end = 0;
    __syncthreads();

    const bool is_there = base >= 0 || delta >= 0;
    bool first = false;
    if (is_pair) {
        for (int j = 0; j < pairs; j += 4) {
            const int4 four = *reinterpret_cast<const int4*>(s.ids + j);
            const int others[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const bool same = others[e] == id, before = same && j + e < i;
                if (same && j + e <= i && rank % kColumns == 0) head = j + e;
                rank += before, count += same;
            }
        }
        first = is_there && rank % kColumns == 0;
        const uint32_t firsts = __ballot_sync(~0u, first), deltas = __ballot_sync(~0u, first && delta >= 0);
        const uint32_t absent = __ballot_sync(~0u, i < pairs && !is_there), missing = __ballot_sync(~0u, id >= 0 && !is_there);
        if (lane == 0)
            s.firsts[i / 32] = firsts, s.deltas[i / 32] = deltas, s.absent[i / 32] = absent, s.missing[i / 32] = missing;
    }
    __syncthreads();

    if (first) {
        const int g = bits_in(s.firsts, i), deltas_ahead = bits_in(s.deltas, i);
        const int groups = bits_in(s.firsts, kMostPairs), deltas = bits_in(s.deltas, kMostPairs);
        Group& mine = s.groups[g];
        s.where[i] = (uint8_t)g;
        mine.slot = delta >= 0 ? delta : base;
        mine.scale_slot = delta >= 0 && p.delta_has_scales ? delta : base;
        mine.count = (uint8_t)min(kColumns, count - rank);
        mine.is_delta = delta >= 0;

        // Shares of equal cost; an item is of the block in whose share it begins.
        const uint32_t each = delta >= 0 ? kDeltaCost : kBaseCost, blocks = gridDim.x, block = blockIdx.x;
        const uint32_t start = (uint32_t)tiles * (kBaseCost * g + (kDeltaCost - kBaseCost) * deltas_ahead);
        const uint32_t total = (uint32_t)tiles * (kBaseCost * groups + (kDeltaCost - kBaseCost) * deltas);
        const uint32_t share = total / blocks, rest = total % blocks, end = start + tiles * each;
        const uint32_t from = block * share + min(block, rest), to = (block + 1) * share + min(block + 1, rest);
        if (from >= start && from < end) s.begin = g * tiles + (int)((from - start + each - 1) / each);
        if (to >= start && to < end) s.end = g * tiles + (int)((to - start + each - 1) / each);
        if (to == total && g == groups - 1) s.end = groups * tiles;
        if (from == total && g == groups - 1) s.begin = groups * tiles;
    }
    __syncthreads();
    if (is_there) s.groups[s.where[head]].columns[rank % kColumns] = (uint8_t)i;
    __syncthreads();
}

}  // namespace moet::moe_w2
