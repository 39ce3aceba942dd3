// How a rank gives up a round: when, and whom it tells.
#pragma once
#include "kernels/p2p_allreduce/launch.h"
#include "kernels/p2p_allreduce/workspace.cuh"

namespace moet::p2p_allreduce {

constexpr int kSpinsBetweenLooks = 64;  // at the clock, and at whether somebody has given up

__device__ __forceinline__ Workspace workspace_of(const Args& p, int rank) {
    return {static_cast<char*>(p.workspaces[rank])};
}

// The first failure of this rank is told to the peers, who need not wait for their own deadline, and to the host.
__device__ __forceinline__ void fail(const Args& p, uint64_t failure, uint64_t round) {
    const auto failed = reinterpret_cast<unsigned long long*>(workspace_of(p, p.rank).failed());
    if (atomicCAS(failed, 0ull, (unsigned long long)failure)) return;
#pragma unroll 1
    for (int other = 0; other < p.world; other++)
        if (other != p.rank) store_shared_word(workspace_of(p, other).told(), failure_of(Cause::kAborted, p.rank, round));
    store_shared_word(p.status, failure);
}

// Counts how often a thread has found that a peer's part is not there, and looks now and then whether to give it up.
class Wait {
  public:
    // Whether the rank has given up. Says so itself: threads of a warp that wait on would keep one that leaves from it.
    __device__ __forceinline__ bool is_over(const Args& p, int peer, uint64_t round) {
        if (++spins_ % kSpinsBetweenLooks) return false;
        if (!begin_) begin_ = nanoseconds();
        const Workspace own = workspace_of(p, p.rank);
        uint64_t failure = load_shared_word(own.failed());
        if (!failure) failure = load_shared_word(own.told());
        if (!failure && nanoseconds() - begin_ > p.deadline_ns) failure = failure_of(Cause::kDeadline, peer, round);
        if (failure) fail(p, failure, round);
        return failure;
    }

  private:
    unsigned spins_ = 0;
    uint64_t begin_ = 0;
};

// Waits until the peer says that it has come to this round; whether it did, and with the same tensor.
__device__ __forceinline__ bool has_arrived(const Args& p, int peer, uint64_t round, uint64_t expected) {
    const uint64_t* arrival = workspace_of(p, p.rank).arrival(round & 1, blockIdx.x, peer);
    for (Wait wait;;) {
        const uint64_t seen = load_shared_word(arrival);
        if (seen == expected) return true;
        if (seen >> kShapeBits == round) {
            fail(p, failure_of(Cause::kOtherShape, peer, round), round);
            return false;
        }
        if (wait.is_over(p, peer, round)) return false;
    }
}

}  // namespace moet::p2p_allreduce
