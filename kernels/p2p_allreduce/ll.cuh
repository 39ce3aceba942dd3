// The low-latency protocol (LL): every 8 bytes that reach a peer hold 4 of x and the round that they belong to.
//
// A peer that finds the round in a word has the data with it, so that nothing is ordered and nothing fenced; what
// crosses the link is twice the bytes of x.
#pragma once
#include "kernels/common/dependent.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/p2p_allreduce/give_up.cuh"
#include "kernels/p2p_allreduce/ll_words.cuh"
#include "kernels/p2p_allreduce/sum.cuh"

namespace moet::p2p_allreduce {

constexpr int kLLUnitsABlock = 128;
// A last warp compares what the ranks were called with, a lane for each.
constexpr int kLLThreads = kLLUnitsABlock + 32;
static_assert(kLLUnitsABlock % 32 == 0 && kMostRanks <= 32 && kLLUnitsABlock * kMostBlocks >= kLLUnits);

// Waits for what the peers send of unit u, into all of `part` but this rank's; whether it came.
__device__ __forceinline__ bool has_come(const Args& p, uint64_t round, int u, uint4 (&part)[kMostRanks]) {
    const Workspace own = workspace_of(p, p.rank);
    const auto flag = static_cast<uint32_t>(round);
    unsigned missing = ((1u << p.world) - 1) & ~(1u << p.rank);
    for (Wait wait;;) {
        Words words[kMostRanks];
#pragma unroll
        for (int r = 0; r < kMostRanks; r++)
            if (missing >> r & 1) words[r] = load_words(own.words(round & 1, r, p.world), u);
#pragma unroll
        for (int r = 0; r < kMostRanks; r++) {
            if (!(missing >> r & 1) || !words[r].are_of(flag)) continue;
            part[r] = words[r].data();
            missing &= ~(1u << r);
        }
        if (!missing) return true;
        if (wait.is_over(p, __ffs(missing) - 1, round)) return false;
    }
}

template <int FORM>
__global__ void __launch_bounds__(kLLThreads) allreduce_ll(const __grid_constant__ Args p) {
    constexpr Type TYPE = static_cast<Type>(FORM);
    let_dependents_begin();
    wait_for_prior();
    const Workspace own = workspace_of(p, p.rank);
    const int thread = threadIdx.x, u = blockIdx.x * p.units_a_block + thread;
    const bool has_unit = thread < p.units_a_block && u < p.units;
    uint4 mine = make_uint4(0, 0, 0, 0);
    if (has_unit) mine = load_fresh(static_cast<const uint4*>(p.x) + u);
    const uint64_t round = *own.round(blockIdx.x) + 1;
    const int parity = round & 1;
    bool arrived = !load_shared_word(own.failed());

    if (ages_words(round)) {
        if (arrived) age_words(p, round, p.units);
        __syncthreads();
        fence_system();
    }
    const int peer = thread - p.units_a_block;
    uint4 part[kMostRanks];
#pragma unroll
    for (int r = 0; r < kMostRanks; r++) part[r] = mine;
    if (arrived && has_unit) {
        const Words words = Words::of(mine, static_cast<uint32_t>(round));
#pragma unroll
        for (int i = 1; i < kMostRanks; i++) {
            if (i >= p.world) break;
            store_words(workspace_of(p, peer_at(p, i)).words(parity, p.rank, p.world), u, words);
        }
        arrived = has_come(p, round, u, part);
    } else if (arrived && peer >= 0 && peer < p.world && peer != p.rank) {
        const uint64_t arrival = arrival_of(round, p.units, Protocol::kLL, TYPE);
        store_shared_word(workspace_of(p, peer).arrival(parity, blockIdx.x, p.rank), arrival);
        arrived = has_arrived(p, peer, round, arrival);
    }
    if (ages_words(round)) fence_system();
    const bool complete = __syncthreads_and(arrived);
    // Nobody should take for a sum what is none.
    const uint4 none = make_uint4(~0u, ~0u, ~0u, ~0u);
    if (has_unit) static_cast<uint4*>(p.out)[u] = complete ? sum_of<TYPE>(part, p.world) : none;
    if (complete) complete_round(own, round);
}

}  // namespace moet::p2p_allreduce
