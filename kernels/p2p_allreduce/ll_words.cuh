// The words of the low-latency protocol: 4 bytes of data and the low 32 bits of the round that they belong to.
//
// In 2^32 rounds those bits come again. So that no word is left that was stored that long ago, in two rounds of 2^30,
// one of each parity, every rank stores anew all that its tensor leaves, with the bits of the round before: in that
// slot, nobody waits for those.
#pragma once
#include "kernels/p2p_allreduce/give_up.cuh"
#include "kernels/p2p_allreduce/workspace.cuh"

namespace moet::p2p_allreduce {

constexpr uint64_t kRoundsBetweenAgings = 1 << 30;

// A unit of 16 bytes in four words.
struct Words {
    uint64_t word[4];

    __device__ static Words of(uint4 data, uint32_t flag) {
        return {with(data.x, flag), with(data.y, flag), with(data.z, flag), with(data.w, flag)};
    }
    __device__ bool are_of(uint32_t flag) const {
        return word[0] >> 32 == flag && word[1] >> 32 == flag && word[2] >> 32 == flag && word[3] >> 32 == flag;
    }
    __device__ uint4 data() const { return make_uint4(word[0], word[1], word[2], word[3]); }

  private:
    __device__ static uint64_t with(uint32_t data, uint32_t flag) { return (uint64_t)flag << 32 | data; }
};

// Where the first half of unit u is in a slot; the second is 32 pairs of words further on. So a warp's 32 units are stored
// by two instructions that each fill whole sectors.
__device__ __forceinline__ int pair_of(int u) { return u / 32 * 64 + u % 32; }

__device__ __forceinline__ void store_words(ulonglong2* slot, int u, const Words& words) {
    const auto at = slot + pair_of(u);
    store_shared_pair(at, words.word[0], words.word[1]);
    store_shared_pair(at + 32, words.word[2], words.word[3]);
}
__device__ __forceinline__ Words load_words(const ulonglong2* slot, int u) {
    const auto at = slot + pair_of(u);
    Words words;
    load_shared_pair(at, words.word[0], words.word[1]);
    load_shared_pair(at + 32, words.word[2], words.word[3]);
    return words;
}

__device__ __forceinline__ bool ages_words(uint64_t round) { return round % kRoundsBetweenAgings < 2; }

// Every launched block ages some of the words from unit `first` on, where those of this round end. A barrier and a fence
// must follow before the block stores anything that a peer waits for.
__device__ __forceinline__ void age_words(const Args& p, uint64_t round, int first) {
    const Words aged = Words::of(make_uint4(0, 0, 0, 0), static_cast<uint32_t>(round - 1));
#pragma unroll 1
    for (int u = first + blockIdx.x * blockDim.x + threadIdx.x; u < kLLUnits; u += gridDim.x * blockDim.x)
#pragma unroll 1
        for (int peer = 0; peer < p.world; peer++)
            if (peer != p.rank) store_words(workspace_of(p, peer).words(round & 1, p.rank, p.world), u, aged);
}

}  // namespace moet::p2p_allreduce
