// The front of a mixture of experts in a decode step: from the router's logits and the activations to the rows that the
// grouped GEMM reads, in one launch.
//
// A row's place follows from what all tokens chose. So every cluster of blocks routes the whole batch for itself, each
// block some of the tokens, which takes less time than waiting for the whole grid would. Then a block quantizes and
// writes its own pieces of tokens: six copies of some columns. Order comes from bit masks and comparisons, never from
// which thread was first.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/vector.cuh"
#include "kernels/moe_front/cluster.cuh"
#include "kernels/moe_front/launch.h"
#include "kernels/moe_front/quantize.cuh"
#include "kernels/moe_front/route.cuh"
#include "kernels/moe_front/softplus.cuh"

namespace moet::moe_front {

constexpr int kCluster = 8;  // blocks
constexpr int kTokensABlock = kMostTokens / kCluster;
constexpr int kPiece = 1024;  // columns
// Threads: first one for each expert, which then copy; after them those that quantize, which then write indices.
constexpr int kScorers = kMostExperts, kQuantizers = kPiece / kVector, kThreads = kScorers + kQuantizers;
constexpr int kWarpsACopy = kPiece / 16 / 32;
static_assert(kTop * kWarpsACopy * 32 == kScorers && kTokensABlock <= kThreads / 32);

struct Shared {
    Routing routing;
    Candidates<kTokensABlock> candidates;
    int best[kTokensABlock][kTop];
    bool padding[kTokensABlock], image[kTokensABlock];
    alignas(16) uint8_t codes[kPiece];
    alignas(16) uint8_t scales[kPiece / 32];
};

__device__ __forceinline__ float load_float(const float* from) { return __uint_as_float(load_fresh_word(from)); }
__device__ __forceinline__ uint32_t load_fresh_byte(const void* from) {
    uint32_t v;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

// Whether token m is part of an image, which has a bias of its own.
__device__ __forceinline__ bool is_image(const Args& p, int m) {
    const uint32_t* words = static_cast<const uint32_t*>(p.token_ids) + (p.ids_are_long ? 2 * m : m);
    const uint32_t low = load_fresh_word(words);
    const int64_t id = p.ids_are_long ? (int64_t)load_fresh_word(words + 1) << 32 | low : (int32_t)low;
    return p.image_first > 0 && id >= p.image_first && id - p.image_first < kImageTokens;
}

// What the thread of an expert does. This block has the tokens `rank`, rank + kCluster ...
struct Scorer {
    const Args& p;
    Shared& s;
    int rank, tokens, expert;
    float text, image;  // biases of the expert

    // Nothing that the kernel ahead may write.
    __device__ __forceinline__ void load_biases() {
        text = load_float(p.bias + expert);
        image = p.image_bias ? load_float(p.image_bias + expert) : 0.f;
    }

    // The logit of token number i of this block.
    __device__ __forceinline__ float load(int i) const {
        return i < tokens ? load_float(p.logits + (rank + i * kCluster) * p.E + expert) : 0.f;
    }
    __device__ __forceinline__ uint32_t key(int i) const {
        return key_of(s.candidates.scores[i][expert], s.image[i] ? image : text);
    }

    // From the first token's logit on: scores, and the best key of each warp's experts.
    __device__ __forceinline__ void score(float logit) const {
        for (int i = 0; i < tokens; i++) {
            const float next = load(i + 1);
            s.candidates.scores[i][expert] = sqrt_softplus(logit);
            const uint32_t best = __reduce_max_sync(~0u, key(i));
            if (expert % 32 == 0) s.candidates.part_best[i][expert / 32] = best;
            logit = next;
        }
    }

    // Which tokens the expert may be chosen for.
    __device__ __forceinline__ void propose() const {
        for (int i = 0; i < tokens; i++) {
            const uint32_t mine = key(i);
            if (mine >= s.candidates.least_key(i)) s.candidates.add(i, mine, expert);
        }
    }
};

// A warp chooses for token m, number i of this block, and tells the cluster.
__device__ __forceinline__ void choose(const Args& p, Shared& s, int i, int m, int lane) {
    const bool padding = s.padding[i];
    const auto chosen = [&](int slot, int expert) {
        const int told = padding ? -1 : expert;
        s.best[i][slot] = expert;
#pragma unroll
        for (int rank = 0; rank < kCluster; rank++) store_in_cluster(&s.routing.experts[m][slot], rank, told);
    };
    const float* scores = s.candidates.scores[i];
    if (s.candidates.count[i] <= kFew)
        best_of_few(s.candidates.few[i], s.candidates.count[i], lane, chosen);
    else
        best_of_all(scores, s.image[i] ? p.image_bias : p.bias, p.E, lane, chosen);
}

// The same warp writes what it chose, while the cluster arrives.
__device__ __forceinline__ void report(const Args& p, const Shared& s, int i, int m, int lane) {
    const bool padding = s.padding[i];
    const float* scores = s.candidates.scores[i];
    float sum = scores[s.best[i][0]];
#pragma unroll
    for (int slot = 1; slot < kTop; slot++) sum = __fadd_rn(sum, scores[s.best[i][slot]]);
    const float factor = __fdiv_rn(p.scaling_factor, sum > 0.f ? sum : 1.f);
    if (lane >= kTop) return;
    p.topk_ids[m * kTop + lane] = padding ? -1 : s.best[i][lane];
    p.topk_weights[m * kTop + lane] = padding ? 0.f : __fmul_rn(scores[s.best[i][lane]], factor);
}

// This block's share of m_indices: a warp a tile.
__device__ __forceinline__ void write_indices(const Args& p, const Routing& routing, int writer, int lane) {
    for (int tile = blockIdx.x + gridDim.x * writer; tile < p.tiles; tile += gridDim.x * (kQuantizers / 32)) {
        const int expert = routing.expert_of(tile, lane), count = expert < 0 ? 0 : routing.count(expert);
        const auto of = [&](int row) { return row < count ? expert : -1; };
        for (int i = 4 * lane; i < p.alignment; i += 4 * 32)
            *reinterpret_cast<int4*>(p.m_indices + tile * p.alignment + i) =
                make_int4(of(i), of(i + 1), of(i + 2), of(i + 3));
    }
}

// A piece of a token: `column` and kPiece - 1 more, as far as there are any.
struct Piece {
    int token, column;

    __device__ __forceinline__ Piece(const Args& p, int item)
        : token(item / p.pieces), column(item % p.pieces * kPiece) {}

    // The eight numbers of a quantizing thread; zeros where there are none.
    __device__ __forceinline__ uint4 load(const Args& p, int quantizer) const {
        const int at = column + quantizer * kVector;
        if (quantizer < 0 || token >= p.M || at >= p.K) return make_uint4(0, 0, 0, 0);
        return load_fresh(static_cast<const __nv_bfloat16*>(p.x) + (int64_t)token * p.K + at);
    }

    // The part of one copy that a warp writes.
    template <int GROUP>
    __device__ __forceinline__ void copy(const Args& p, const Shared& s, int warp, int lane) const {
        constexpr int kWordColumns = 4 * GROUP;
        const int slot = warp / kWarpsACopy, part = warp % kWarpsACopy, expert = s.routing.experts[token][slot];
        const int row = expert < 0 ? -1 : s.routing.row(token, expert, p.alignment, lane);
        if (column == 0 && part == 0 && lane == 0) p.inv_perm[token * kTop + slot] = row;
        if (row < 0) return;
        const int columns = min(kPiece, p.K - column), at = (part * 32 + lane) * 16;
        if (at < columns)
            *reinterpret_cast<uint4*>(static_cast<uint8_t*>(p.a) + (int64_t)row * p.K + column + at) =
                *reinterpret_cast<const uint4*>(s.codes + at);
        if (part == 0 && lane < columns / kWordColumns)
            p.a_scale[(int64_t)(column / kWordColumns + lane) * p.R + row] =
                reinterpret_cast<const uint32_t*>(s.scales)[lane];
    }
};

template <int GROUP>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads) front(const Args p) {
    __shared__ Shared s;
    const int lane = threadIdx.x & 31, warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
    const int rank = blockIdx.x % kCluster;
    const int quantizer = (int)threadIdx.x - kScorers;
    const int tokens = (p.M - rank + kCluster - 1) / kCluster;
    const bool scores = (int)threadIdx.x < p.E;
    Scorer scorer{p, s, rank, tokens, (int)threadIdx.x, 0.f, 0.f};

    if (scores) scorer.load_biases();
    __syncwarp();  // or ptxas moves the loads behind the wait
    begin_in_cluster();
    wait_for_prior();
    let_dependents_begin();  // no sooner: what is behind the dependents would fill the GPU too, and wait
    const float logit = scores ? scorer.load(0) : 0.f;
    Piece piece(p, blockIdx.x);
    uint4 eight = piece.load(p, quantizer);
    s.routing.clear();
    for (int i = threadIdx.x; i < kTokensABlock * kExpertWords; i += kThreads) s.candidates.part_best[0][i] = 0;
    if (quantizer >= 0 && quantizer < tokens) {
        const int m = rank + quantizer * kCluster;
        s.candidates.count[quantizer] = 0;
        s.padding[quantizer] = p.is_padding && load_fresh_byte(p.is_padding + m);
        s.image[quantizer] = p.token_ids && is_image(p, m);
    }
    __syncthreads();
    if (scores) scorer.score(logit);
    if (quantizer >= 0) quantize<GROUP>(eight, quantizer, s.codes, s.scales);
    __syncthreads();
    if (scores) scorer.propose();
    __syncthreads();
    wait_for_cluster();
    if (warp < tokens) choose(p, s, warp, rank + warp * kCluster, lane);
    __syncwarp();
    arrive_at_cluster();
    if (blockIdx.x < kCluster && warp < tokens) report(p, s, warp, rank + warp * kCluster, lane);
    __syncwarp();
    wait_for_cluster();
    s.routing.gather(p.M);
    __syncthreads();

    if (quantizer >= 0) write_indices(p, s.routing, warp - kScorers / 32, lane);
    for (int item = blockIdx.x; item < p.M * p.pieces; item += gridDim.x) {
        if (item != (int)blockIdx.x) {
            piece = Piece(p, item);
            eight = piece.load(p, quantizer);
            __syncthreads();
            if (quantizer >= 0) quantize<GROUP>(eight, quantizer, s.codes, s.scales);
            __syncthreads();
        }
        if (quantizer < 0) piece.copy<GROUP>(p, s, warp, lane);
    }
}

MOET_LAUNCH_FACTS extern constexpr LaunchFact kFacts[] = {
    launch_fact("front", 128, kThreads, 0, 0),
    launch_fact("front", 32, kThreads, 0, 0),
};

int run(const Args& args, int group, bool dependent, void* stream) {
    int device = 0, multiprocessors = 0;
    if (const cudaError_t e = cudaGetDevice(&device)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
        return e;
    Args p = args;
    p.pieces = (args.K + kPiece - 1) / kPiece;
    p.tiles = args.R / args.alignment;
    const int clusters = std::min((p.M * p.pieces + kCluster - 1) / kCluster, std::max(1, multiprocessors / kCluster));
    const Launch how{dim3(clusters * kCluster), dim3(kThreads), 0, dependent, static_cast<cudaStream_t>(stream)};
    return launch(group == 128 ? front<128> : front<32>, p, how);
}

}  // namespace moet::moe_front
