// A rank's workspace: what its peers write, and what it keeps between rounds. reference.py has the same layout.
//
//   0      failed      8 bytes; the first failure seen here, 0 before that
//   256    told        8 bytes; the failure that a peer says it is, having given up
//   512    rounds      8 bytes for each block: rounds that it has completed
//   1024   arrivals    [parity][block][sender], a sector each: what the sender has delivered of which round
//   65536  data        [parity][sender], kMostBytes each: of the simple protocol
//   behind words       [parity][sender], 2 kMostLLBytes each: of the low-latency protocol (ll_words.cuh)
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

constexpr int kLLUnits = kMostLLBytes / kUnitBytes;
enum class Protocol : int { kSimple, kLL };

// An arrival: the round, and what the sender was called with, in the low bits.
constexpr int kTypeBits = 2, kProtocolBits = 1, kShapeBits = 19;
static_assert((kMostBytes / kUnitBytes) < 1 << (kShapeBits - kTypeBits - kProtocolBits));

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
    __device__ ulonglong2* words(int parity, int sender, int world) const {
        const auto behind = base + kData + (int64_t)2 * world * kMostBytes;
        return reinterpret_cast<ulonglong2*>(behind + (int64_t)(parity * world + sender) * 2 * kMostLLBytes);
    }
};

__device__ __forceinline__ uint64_t arrival_of(uint64_t round, int units, Protocol protocol, Type type) {
    const auto shape = (uint64_t)units << kProtocolBits | (uint64_t)protocol;
    return round << kShapeBits | shape << kTypeBits | (uint64_t)type;
}
__device__ __forceinline__ uint64_t failure_of(Cause cause, int peer, uint64_t round) {
    return round << 16 | (uint64_t)peer << 8 | (uint64_t)cause;
}

// Each rank begins with another peer: its i-th.
__device__ __forceinline__ int peer_at(const Args& p, int i) {
    return p.rank + i < p.world ? p.rank + i : p.rank + i - p.world;
}

// Says that this block has completed a round; also for the blocks that this launch does not have, so that all agree in
// the next. Every thread calls it, after all have read what round it is.
__device__ __forceinline__ void complete_round(const Workspace& own, uint64_t round) {
    for (unsigned block = blockIdx.x + threadIdx.x * gridDim.x; block < kMostBlocks; block += blockDim.x * gridDim.x)
        *own.round(block) = round;
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
// Two of them, each whole, which are seen in any order.
__device__ __forceinline__ void load_shared_pair(const ulonglong2* from, uint64_t& a, uint64_t& b) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
}
__device__ __forceinline__ void store_shared_pair(ulonglong2* to, uint64_t a, uint64_t b) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
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
