// Which experts a token goes to, and in which rows that puts it.
#pragma once
#include <cstdint>

#include "kernels/moe_front/launch.h"

namespace moet::moe_front {

constexpr int kExpertWords = kMostExperts / 32, kTokenWords = kMostTokens / 32;
constexpr int kFew = 32;  // candidates that a warp takes at once

// The order of score + bias as that of unsigned numbers, none of which is 0. NaN counts as -1e30.
__device__ __forceinline__ uint32_t key_of(float score, float bias) {
    const float biased = __fadd_rn(score, bias);
    const uint32_t bits = __float_as_uint(isnan(biased) ? -1e30f : biased);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Of word `word` of a bit mask, the bits whose place in the whole is below `place`.
__device__ __forceinline__ uint32_t bits_below(int place, int word) {
    return word < place / 32 ? ~0u : word == place / 32 ? (1u << place % 32) - 1 : 0u;
}

// What a block knows of the whole batch, in shared memory.
struct Routing {
    int experts[kMostTokens][kTop];              // of each token, best first; -1 where it is padding
    uint32_t chosen[kExpertWords];               // experts that some token chose, a bit each
    uint32_t tokens[kTokenWords][kMostExperts];  // the tokens that chose an expert, a bit each

    // Nobody has chosen yet.
    __device__ __forceinline__ void clear() {
        for (int i = threadIdx.x; i < kTokenWords * kMostExperts; i += blockDim.x) tokens[0][i] = 0;
        if (threadIdx.x < kExpertWords) chosen[threadIdx.x] = 0;
    }

    // Makes the masks of what the tokens chose.
    __device__ __forceinline__ void gather(int count) {
        for (int i = threadIdx.x; i < count * kTop; i += blockDim.x) {
            const int m = i / kTop, expert = experts[0][i];
            if (expert < 0) continue;
            atomicOr(&tokens[m / 32][expert], 1u << m % 32);
            atomicOr(&chosen[expert / 32], 1u << expert % 32);
        }
    }

    // How many tokens chose the expert.
    __device__ __forceinline__ int count(int expert) const {
        int sum = 0;
#pragma unroll
        for (int i = 0; i < kTokenWords; i++) sum += __popc(tokens[i][expert]);
        return sum;
    }

    // The row of token m's copy for an expert that it chose: a tile for each chosen expert in turn, in it the expert's
    // tokens in turn. By a whole warp.
    __device__ __forceinline__ int row(int m, int expert, int alignment, int lane) const {
        int part = 0;
        if (lane < kExpertWords)
            part = __popc(chosen[lane] & bits_below(expert, lane)) * alignment;
        else if (lane < kExpertWords + kTokenWords)
            part = __popc(tokens[lane - kExpertWords][expert] & bits_below(m, lane - kExpertWords));
        return __reduce_add_sync(~0u, part);
    }

    // The expert that has a tile, or -1. By a whole warp.
    __device__ __forceinline__ int expert_of(int tile, int lane) const {
        const uint32_t word = lane < kExpertWords ? chosen[lane] : 0;
        const int count = __popc(word);
        int before = count;
#pragma unroll
        for (int distance = 1; distance < kExpertWords; distance *= 2) {
            const int below = __shfl_up_sync(~0u, before, distance);
            if (lane >= distance) before += below;
        }
        before -= count;
        const uint32_t there = __ballot_sync(~0u, tile >= before && tile < before + count);
        if (!there) return -1;
        const int source = __ffs(there) - 1;
        const uint32_t bits = __shfl_sync(~0u, word, source);
        const int nth = tile - __shfl_sync(~0u, before, source);
        const bool is_it = (bits >> lane & 1) && __popc(bits & ((1u << lane) - 1)) == nth;
        return 32 * source + __ffs(__ballot_sync(~0u, is_it)) - 1;
    }
};

// The tokens that a block chooses for.
template <int TOKENS>
struct Candidates {
    float scores[TOKENS][kMostExperts];
    alignas(16) uint32_t part_best[TOKENS][kExpertWords];
    uint64_t few[TOKENS][kFew];
    int count[TOKENS];  // of candidates, of which `few` has the first

    // A key that six experts or more reach, so that no expert below it is chosen: each of six parts of them has one.
    __device__ __forceinline__ uint32_t least_key(int i) const {
        static_assert(kExpertWords == 2 * kTop);
        uint32_t least = ~0u;
#pragma unroll
        for (int part = 0; part < kTop; part++) least = min(least, max(part_best[i][part], part_best[i][part + kTop]));
        return least;
    }

    // Candidates in any order: what a lane makes of them depends on all of them alike.
    __device__ __forceinline__ void add(int i, uint32_t key, int expert) {
        const int at = atomicAdd(&count[i], 1);
        if (at < kFew) few[i][at] = (uint64_t)key << 32 | (uint32_t)(kMostExperts - expert);
    }
};

// Calls `chosen(slot, expert)` in the lanes that have one of the best candidates: the larger key first, of equal ones
// the lower expert.
template <typename Chosen>
__device__ __forceinline__ void best_of_few(const uint64_t* few, int count, int lane, const Chosen& chosen) {
    const uint64_t own = lane < count ? few[lane] : 0;
    int slot = 0;
    for (int i = 0; i < count; i++) slot += few[i] > own;
    if (lane < count && slot < kTop) chosen(slot, kMostExperts - (int)(uint32_t)own);
}

// The same of all experts, by taking the largest key again and again: where many are as good, or there are few experts.
// No expert is taken twice, whatever the scores are.
template <typename Chosen>
__device__ __forceinline__ void best_of_all(const float* scores, const float* bias, int experts, int lane,
                                            const Chosen& chosen) {
    uint32_t keys[kExpertWords];
#pragma unroll
    for (int i = 0; i < kExpertWords; i++) {
        const int expert = i * 32 + lane;
        keys[i] = expert < experts ? key_of(scores[expert], bias[expert]) : 0;
    }
#pragma unroll 1
    for (int slot = 0; slot < kTop; slot++) {
        uint32_t best = keys[0];
#pragma unroll
        for (int i = 1; i < kExpertWords; i++) best = max(best, keys[i]);
        best = __reduce_max_sync(~0u, best);
        int mine = kMostExperts;
#pragma unroll
        for (int i = kExpertWords - 1; i >= 0; i--) mine = keys[i] == best ? i * 32 + lane : mine;
        const int expert = __reduce_min_sync(~0u, mine);
#pragma unroll
        for (int i = 0; i < kExpertWords; i++) keys[i] = i * 32 + lane == expert ? 0 : keys[i];
        if (lane == slot) chosen(slot, expert);
    }
}

}  // namespace moet::moe_front
