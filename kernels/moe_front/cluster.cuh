// Clusters of blocks: barriers among them, and writing into each other's shared memory.
#pragma once
#include <cstdint>

#include "kernels/common/shared.cuh"

namespace moet {

// Every arrival is waited for once, by all threads of the cluster; those of a warp do either together.
// Of the first kind: this block has begun. It orders nothing, and so takes no time.
__device__ __forceinline__ void begin_in_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// Of the second: what this thread has written to any block's shared memory is seen by those that have waited.
__device__ __forceinline__ void arrive_at_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Writes to where block `rank` of the cluster has what `here` is in this one. That block must have begun.
__device__ __forceinline__ void store_in_cluster(int* here, int rank, int value) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
    asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(there), "r"(value) : "memory");
}

}  // namespace moet
