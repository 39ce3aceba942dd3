// A rank's workspace: what its peers write, and what it keeps between rounds. reference.py has the same layout.
//
//   0      failed      8 bytes; the first failure seen here, 0 before that
//   256    told        8 bytes; the failure that a peer says it is, having given up
//   512    rounds      8 bytes for each block: rounds that it has completed
//   1024   arrivals    [parity][block][sender], a sector each: what the sender has delivered of which round
//   65536  data        [parity][sender], kMostBytes each
//
// Arrivals are a sector apart: over PCIe, one that several write can cost a read and a write at the receiver.
#pragma once
#include <cstdint>

#include "kernels/p2p_allreduce/launch.h"

namespace moet::p2p_allreduce {

constexpr int kMostBlocks = 64;
constexpr int kSector = 32;
constexpr int kTold = 256, kRounds = 512, kArrivals = 1024, kData = 65536;
static_assert(kArrivals + 2 * kMostBlocks * kMostRanks * kSector <= kData);

// An arrival: the round, and the shape that the sender was called with, in the low bits.
constexpr int kTypeBits = 2, kShapeBits = 18;
static_assert((kMostBytes / kUnitBytes) < 1 << (kShapeBits - kTypeBits));

// A failure: the cause, the peer and the round.
enum class Cause : uint64_t { kDeadline = 1, kAborted, kOtherShape };

struct Workspace {
    char* base;

    __device__ uint64_t* failed() const { return reinterpret_cast<uint64_t*>(base); }
    __device__ uint64_t* told() const { return reinterpret_cast<uint64_t*>(base + kTold); }
    __device__ uint64_t* round(int block) const { return reinterpret_cast<uint64_t*>(base + kRounds) + block; }
    __device__ uint64_t* arrival(int parity, int block, int sender) const {
        return reinterpret_cast<uint64_t*>(base + kArrivals + ((parity * kMostBlocks + block) * kMostRanks + sender) * kSector);
    }
    __device__ uint4* data(int parity, int sender, int world) const {
        return reinterpret_cast<uint4*>(base + kData + (int64_t)(parity * world + sender) * kMostBytes);
    }
};

__device__ __forceinline__ uint64_t arrival_of(uint64_t round, int units, int type) {
    return round << kShapeBits | (uint64_t)units << kTypeBits | (uint64_t)type;
}
__device__ __forceinline__ uint64_t failure_of(Cause cause, int peer, uint64_t round) {
    return round << 16 | (uint64_t)peer << 8 | (uint64_t)cause;
}

// Single words that other GPUs, or the host, read and write at the same time.
__device__ __forceinline__ uint64_t load_shared_word(const uint64_t* from) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
}
__device__ __forceinline__ void store_shared_word(uint64_t* to, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}

// What this thread knows to be written is written before what it stores after, to every GPU and the host; what it loaded
// before tells it what it may load after.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t v;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v)::"memory");
    return v;
}

}  // namespace moet::p2p_allreduce
