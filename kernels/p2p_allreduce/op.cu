// out = x summed over the ranks, which push into each other's workspaces over peer memory. README.md has why it is right.
//
// A block takes a part of x, and a thread 16 bytes of that. The block stores its part into the workspace of every peer,
// says there that it has arrived, waits until the peers' parts have arrived in its own, and adds them up in order of rank:
// so every rank has the same bits. Rounds are counted in device memory, so a replayed graph goes on where the last launch
// stopped.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/vector.cuh"
#include "kernels/p2p_allreduce/sum.cuh"
#include "kernels/p2p_allreduce/workspace.cuh"

namespace moet::p2p_allreduce {

constexpr int kThreads = 512;
static_assert(kThreads / 32 >= kMostRanks && kThreads * kMostBlocks >= kMostBytes / kUnitBytes);
constexpr int kSpinsBetweenLooks = 64;  // at the clock, and at whether somebody has given up

__device__ __forceinline__ Workspace workspace_of(const Args& p, int rank) {
    return {static_cast<char*>(p.workspaces[rank])};
}

// The first failure of this rank is told to the peers, who need not wait for their own deadline, and to the host.
__device__ __forceinline__ void fail(const Args& p, uint64_t failure, uint64_t round) {
    const auto failed = reinterpret_cast<unsigned long long*>(workspace_of(p, p.rank).failed());
    if (atomicCAS(failed, 0ull, (unsigned long long)failure)) return;
    for (int other = 0; other < p.world; other++)
        if (other != p.rank) store_shared_word(workspace_of(p, other).told(), failure_of(Cause::kAborted, p.rank, round));
    store_shared_word(p.status, failure);
}

// Waits until the peer's part of this round has arrived; returns 0, or the failure that is cause to give up.
__device__ __forceinline__ uint64_t wait_for(const Args& p, int peer, uint64_t round, uint64_t expected) {
    const Workspace own = workspace_of(p, p.rank);
    const uint64_t* arrival = own.arrival(round & 1, blockIdx.x, peer);
    const uint64_t begin = nanoseconds();
    for (int spins = 0;; spins++) {
        const uint64_t seen = load_shared_word(arrival);
        if (seen == expected) return 0;
        if (seen >> kShapeBits == round) return failure_of(Cause::kOtherShape, peer, round);
        if (spins % kSpinsBetweenLooks) continue;
        if (const uint64_t failed = load_shared_word(own.failed())) return failed;
        if (const uint64_t told = load_shared_word(own.told())) return told;
        if (nanoseconds() - begin > p.deadline_ns) return failure_of(Cause::kDeadline, peer, round);
    }
}

template <int FORM>
__global__ void __launch_bounds__(kThreads) allreduce(const __grid_constant__ Args p) {
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
    if (has_unit && !failed_before) {
#pragma unroll
        for (int i = 1; i < kMostRanks; i++) {
            if (i >= p.world) break;
            // Each rank begins with another peer.
            const int peer = p.rank + i < p.world ? p.rank + i : p.rank + i - p.world;
            workspace_of(p, peer).data(parity, p.rank, p.world)[u] = mine;
        }
    }
    // One answer for the block: another may give up while these threads look, and what some kept back has not arrived.
    bool arrived = !__syncthreads_or(failed_before);
    // A warp for each peer: threads of one warp that wait could keep the one that has given up from saying so.
    const int peer = thread / 32;
    if (arrived && thread % 32 == 0 && peer < p.world && peer != p.rank) {
        const uint64_t arrival = arrival_of(round, p.units, FORM);
        fence_system();
        store_shared_word(workspace_of(p, peer).arrival(parity, blockIdx.x, p.rank), arrival);
        const uint64_t failure = wait_for(p, peer, round, arrival);
        fence_system();
        arrived = !failure;
        if (failure) fail(p, failure, round);
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
        Numbers<TYPE> sum(part[0]);
#pragma unroll
        for (int r = 1; r < kMostRanks; r++)
            if (r < p.world) sum.add(Numbers<TYPE>(part[r]));
        *out = sum.packed();
    }
    // Also for the blocks that this launch does not have, so that all agree in the next.
    for (int block = blockIdx.x + thread * gridDim.x; block < kMostBlocks; block += kThreads * gridDim.x)
        *own.round(block) = round;
}

using Kernel = void (*)(Args);
constexpr std::array<Kernel, 3> kKernels = {allreduce<0>, allreduce<1>, allreduce<2>};

MOET_LAUNCH_FACTS extern constexpr auto kFacts = std::array{
    launch_fact("allreduce", 0, kThreads, 0, 0),
    launch_fact("allreduce", 1, kThreads, 0, 0),
    launch_fact("allreduce", 2, kThreads, 0, 0),
};

int64_t workspace_bytes(int world) { return kData + 2 * (int64_t)world * kMostBytes; }

int run(Args args, Type type, bool dependent, void* stream) {
    const int blocks = std::min((args.units + kThreads - 1) / kThreads, kMostBlocks);
    args.units_a_block = (args.units + blocks - 1) / blocks;
    return launch(kKernels[static_cast<int>(type)], args,
                  {dim3(blocks), dim3(kThreads), 0, dependent, static_cast<cudaStream_t>(stream)});
}

}  // namespace moet::p2p_allreduce
