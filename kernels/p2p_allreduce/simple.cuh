// The simple protocol: a block stores its part of x into every peer's workspace, then says there that it has arrived.
//
// A fence between the two keeps their order. It costs the time of a way to the peer and back; the bytes are those of x.
#pragma once
#include "kernels/common/dependent.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/p2p_allreduce/give_up.cuh"
#include "kernels/p2p_allreduce/ll_words.cuh"
#include "kernels/p2p_allreduce/sum.cuh"

namespace moet::p2p_allreduce {

constexpr int kSimpleUnitsABlock = 512;
static_assert(kSimpleUnitsABlock >= kMostRanks && kSimpleUnitsABlock * kMostBlocks >= kMostBytes / kUnitBytes);

template <int FORM>
__global__ void __launch_bounds__(kSimpleUnitsABlock) allreduce_simple(const __grid_constant__ Args p) {
    constexpr Type TYPE = static_cast<Type>(FORM);
    let_dependents_begin();
    wait_for_prior();
    const Workspace own = workspace_of(p, p.rank);
    const int thread = threadIdx.x, u = blockIdx.x * p.units_a_block + thread;
    const bool has_unit = thread < p.units_a_block && u < p.units;
    uint4 mine = make_uint4(0, 0, 0, 0);
    if (has_unit) mine = load_fresh(static_cast<const uint4*>(p.x) + u);
    uint4* out = static_cast<uint4*>(p.out) + u;
    const uint64_t round = *own.round(blockIdx.x) + 1;
    const int parity = round & 1;
    const bool failed_before = load_shared_word(own.failed());

    // A rank that gave up is not waited for, so it must not write either: a peer may still read what it would overwrite.
    if (!failed_before && ages_words(round)) age_words(p, round, 0);
    if (has_unit && !failed_before) {
#pragma unroll
        for (int i = 1; i < kMostRanks; i++) {
            if (i >= p.world) break;
            workspace_of(p, peer_at(p, i)).data(parity, p.rank, p.world)[u] = mine;
        }
    }
    // One answer for the block: another may give up while these threads look, and what some kept back has not arrived.
    bool arrived = !__syncthreads_or(failed_before);
    // A thread for each peer.
    if (arrived && thread < p.world && thread != p.rank) {
        const uint64_t arrival = arrival_of(round, p.units, Protocol::kSimple, TYPE);
        fence_system();
        store_shared_word(workspace_of(p, thread).arrival(parity, blockIdx.x, p.rank), arrival);
        arrived = has_arrived(p, thread, round, arrival);
        fence_system();
    }
    if (!__syncthreads_and(arrived)) {
        // Nobody should take for a sum what is none.
        if (has_unit) *out = make_uint4(~0u, ~0u, ~0u, ~0u);
        return;
    }

    if (has_unit) {
        uint4 part[kMostRanks];
#pragma unroll
        for (int r = 0; r < kMostRanks; r++)
            if (r < p.world) part[r] = r == p.rank ? mine : load_fresh(own.data(parity, r, p.world) + u);
        *out = sum_of<TYPE>(part, p.world);
    }
    complete_round(own, round);
}

}  // namespace moet::p2p_allreduce
