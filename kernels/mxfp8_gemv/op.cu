// y[M, G, N] = x[M, G, K] w[G, N, K]^T, MXFP8: few rows of x, so that reading w is all that takes time.
//
// Weights are the A operand (16 rows of w), rows of x the B operand (8 columns): up to 8 rows of x cost no padding. A block
// owns 16 rows of w and all of K, a warp of it some chunks of 128 k. x is the same for every tile, so its fragments stay in
// registers while tiles of w stream past through the warp's own ring in shared memory: no barrier until a tile's sum over
// the warps. Who sums which k, and in which order, follows from K (split.h): the bits of a row of y depend on its row of x,
// on w and on K alone.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <type_traits>
#include <utility>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/mma_policy.cuh"
#include "kernels/common/scale_layout.cuh"
#include "kernels/common/shared.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/mxfp8_gemv/launch.h"
#include "kernels/mxfp8_gemv/split.h"
#include "kernels/mxfp8_gemv/x_scales.cuh"

namespace moet::mxfp8_gemv {

constexpr int kTileRows = 16;
constexpr int kStageBytes = kTileRows * kChunk + kTileRows * 4;  // weights, then a word of scales a row
constexpr int kScratchBytes = 1024;                              // a warp and 8 rows of x

// A form is a split, 8 or 16 rows of x at a time, and a layout of the scales.
constexpr int kFormCount = kSplitCount * 4;
constexpr int form_of(int split, int tiles, bool swizzled) { return split * 4 + (tiles - 1) * 2 + swizzled; }
constexpr const Split& split_of(int form) { return kSplits[form / 4]; }
constexpr int tiles_of(int form) { return form / 2 % 2 + 1; }
constexpr bool swizzled_in(int form) { return form % 2; }
constexpr Depth depth_of(int form, bool sm_120) {
    return sm_120 ? split_of(form).sm_120[tiles_of(form) - 1] : split_of(form).sm_90[tiles_of(form) - 1];
}
// `block_scaled`: the instruction is there (mma_policy.cuh).
constexpr int table_bytes(int form, bool block_scaled) {
    return split_of(form).chunks * tiles_of(form) * scale_table_bytes(block_scaled);
}
// A warp has a scratch, the tables of x's scales, and a ring.
constexpr int shared_bytes(int form, bool sm_120, bool block_scaled) {
    const int ring = depth_of(form, sm_120).stages * kStageBytes;
    return split_of(form).ranges * (kScratchBytes * tiles_of(form) + table_bytes(form, block_scaled) + ring);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr bool kBlockScaledHere = true;
#else
constexpr bool kBlockScaledHere = false;
#endif
// MOET_NARROW: a build for tests, in which the architecture that can run takes the stages of the one that cannot.
#ifdef MOET_NARROW
constexpr bool kNarrow = true;
#else
constexpr bool kNarrow = false;
#endif

constexpr int kTableBytes = scale_table_bytes(kBlockScaledHere);

// Of a form, where it is compiled.
template <int FORM>
constexpr Split kSplit = split_of(FORM);
template <int FORM>
constexpr int kStages = depth_of(FORM, kBlockScaledHere || kNarrow).stages;
template <int FORM>
constexpr int kBlocks = depth_of(FORM, kBlockScaledHere).blocks;
template <int FORM>
constexpr int kTiles = tiles_of(FORM);
template <int FORM>
constexpr bool kSwizzled = swizzled_in(FORM);
template <int FORM>
constexpr bool kPrepared = kBlockScaledHere || split_of(FORM).prepared[tiles_of(FORM) - 1];

// x between its reading and its use, when it is not prepared.
struct PackedB {
    uint32_t r[2];
};
__device__ __forceinline__ const PreparedB& ready(const PreparedB& b) { return b; }
__device__ __forceinline__ PreparedB ready(const PackedB& b) {
    uint32_t b0 = b.r[0], b1 = b.r[1];
    asm volatile("" : "+r"(b0), "+r"(b1));  // or the compiler prepares x ahead of the loop, and has no registers for it
    return prepare_b(b0, b1);
}

struct Work {
    Args a;
    int tiles;  // of 16 rows of w, a group
    int ahead;  // stages that are filled before x is read
};

template <int FORM>
__global__ void __launch_bounds__(kSplit<FORM>.ranges * 32, kBlocks<FORM>) gemv(const Work p) {
    constexpr int WARPS = kSplit<FORM>.ranges, CHUNKS = kSplit<FORM>.chunks, MT = kTiles<FORM>;
    constexpr int STAGES = kStages<FORM>, K = kSplit<FORM>.K, TABLE = kTableBytes;
    constexpr bool SWIZZLED = kSwizzled<FORM>, TAIL = K % kChunk != 0;
    extern __shared__ __align__(128) uint8_t memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int group = blockIdx.y % p.a.G, m0 = blockIdx.y / p.a.G * 8 * MT, N = p.a.N;
    const int chunk0 = warp * CHUNKS, row4 = lane >> 3, column = lane & 7;
    const uint32_t scratch = shared_address(memory) + warp * kScratchBytes * MT;
    const uint32_t tables = shared_address(memory) + WARPS * kScratchBytes * MT + warp * CHUNKS * MT * TABLE;
    const uint32_t rings = shared_address(memory) + WARPS * (kScratchBytes + CHUNKS * TABLE) * MT;
    const uint32_t ring = rings + warp * STAGES * kStageBytes;
    const uint8_t* const weights =
        static_cast<const uint8_t*>(p.a.w) + ((size_t)group * N + row4) * K + (size_t)chunk0 * kChunk + column * 16;
    const uint8_t* const weight_scales = static_cast<const uint8_t*>(p.a.w_scale);
    const int mine = (p.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;

    // The last tile ends where w ends: rows that the one before has too come out with the same bits.
    auto first_row = [&](int i) { return min(((int)blockIdx.x + i * (int)gridDim.x) * kTileRows, N - kTileRows); };
    auto k_left = [&](int c) { return TAIL ? min(kChunk, K - (chunk0 + c) * kChunk) : kChunk; };

    // Asks for chunk c of this block's tile i, when the chunks ahead of it were asked for; a group of copies even where there
    // is none, so that they can be counted.
    const uint8_t *tile_weights = weights, *tile_scales = weight_scales;
    auto fill = [&](int i, int c, int slot) {
        if (i < mine) {
            if (c == 0) {
                const int n0 = first_row(i);
                tile_weights = weights + (size_t)n0 * K;
                tile_scales = weight_scales + scale_word<SWIZZLED>(group * N + n0 + lane, chunk0, K);
            }
            const uint32_t stage = ring + slot * kStageBytes;
            const bool inside = !TAIL || column * 16 < k_left(c);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint8_t* source = tile_weights + c * kChunk + 4 * j * K;
                copy16(stage + in_tile(row4 + 4 * j, column), inside ? source : weights, inside);
            }
            if (lane < kTileRows) {
                const uint8_t* scales = tile_scales + c * (SWIZZLED ? 512 : 4);
                const uint32_t to = stage + kTileRows * kChunk + lane * 4;
                if (SWIZZLED || !TAIL)
                    copy4(to, scales);
                else
                    store_shared(to, load_scales(scales, k_left(c) / 32));
            }
        }
        commit_copies();
    };

    let_dependents_begin();
#pragma unroll
    for (int s = 0; s < STAGES; s++)
        if (s < p.ahead) fill(s / CHUNKS, s % CHUNKS, s);
    wait_for_prior();

    uint4 raw[CHUNKS][2 * MT];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = m0 + i * 4 + row4;
            raw[c][i] = make_uint4(0, 0, 0, 0);
            if (m < p.a.M && (!TAIL || column * 16 < k_left(c)))
                raw[c][i] = load_fresh(static_cast<const uint8_t*>(p.a.x) + m * p.a.x_row + group * p.a.x_group +
                                       (chunk0 + c) * kChunk + column * 16);
        }
    // Lane 4 n + c % 4 holds the scales of row n of x, chunk c.
    uint32_t x_words[(CHUNKS + 3) / 4][MT];
#pragma unroll
    for (int i = 0; i < (CHUNKS + 3) / 4; i++)
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            const int m = m0 + mt * 8 + g, c = i * 4 + t;
            x_words[i][mt] = 0;
            if (m < p.a.M && c < CHUNKS) x_words[i][mt] = load_x_scales<TAIL>(p.a, m, group, chunk0 + c, k_left(c) / 32);
        }
    __syncwarp();  // or ptxas moves the loads of x behind the copies that follow
#pragma unroll
    for (int s = 0; s < STAGES; s++)
        if (s >= p.ahead) fill(s / CHUNKS, s % CHUNKS, s);

    std::conditional_t<kPrepared<FORM>, PreparedB, PackedB> b[CHUNKS * 4][MT];
    auto keep = [](auto& kept, uint32_t b0, uint32_t b1) {
        if constexpr (kPrepared<FORM>)
            kept = prepare_b(b0, b1);
        else
            kept.r[0] = b0, kept.r[1] = b1;
    };
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) store_shared(scratch + in_tile(i * 4 + row4, column), raw[c][i]);
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
            store_scales_b(tables + (c * MT + mt) * TABLE, __shfl_sync(~0u, x_words[c >> 2][mt], (lane & 28) + (c & 3)));
        __syncwarp();
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t v[4];
                load_matrices(v, scratch + mt * kScratchBytes + in_tile(lane & 7, h * 4 + (lane >> 3)));
                keep(b[c * 4 + 2 * h][mt], v[0], v[1]);
                keep(b[c * 4 + 2 * h + 1][mt], v[2], v[3]);
            }
        __syncwarp();
    }

    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < mine; i++) {
        float d[MT][4] = {};
        auto chunk = [&](auto index) {
            constexpr int c = decltype(index)::value;
            wait_for_copies<STAGES - 1>();
            __syncwarp();
            const int here = CHUNKS % STAGES == 0 ? c % STAGES : slot;
            const uint32_t stage = ring + here * kStageBytes;
            uint32_t a[4][4];
#pragma unroll
            for (int j = 0; j < 4; j++) load_matrices(a[j], stage + in_tile(lane & 15, 2 * j + (lane >> 4)));
            const PreparedScalesA sa = load_scales_a(stage + kTileRows * kChunk);
            PreparedScalesB sb[MT];
#pragma unroll
            for (int mt = 0; mt < MT; mt++) sb[mt] = load_scales_b(tables + (c * MT + mt) * TABLE);
            __syncwarp();
            fill(i + (c + STAGES) / CHUNKS, (c + STAGES) % CHUNKS, here);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            const int steps = k_left(c) / 32;
            auto step = [&](auto number) {
                constexpr int s = decltype(number)::value;
                if (s >= steps) return;
                const PreparedA prepared = prepare_a(a[s]);
#pragma unroll
                for (int mt = 0; mt < MT; mt++) mma_mx<s>(d[mt], prepared, ready(b[c * 4 + s][mt]), sa, sb[mt]);
            };
            [&]<int... S>(std::integer_sequence<int, S...>) {
                (step(std::integral_constant<int, S>{}), ...);
            }(std::make_integer_sequence<int, 4>{});
        };
        [&]<int... C>(std::integer_sequence<int, C...>) {
            (chunk(std::integral_constant<int, C>{}), ...);
        }(std::make_integer_sequence<int, CHUNKS>{});

        // Tiles take turns with two halves of the scratch, so that one barrier a tile is enough.
        const int half = (i & 1) * 512 * MT;
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            const float(&v)[4] = d[mt];
            store_shared(scratch + half + mt * 512 + lane * 16, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]),
                                                                           __float_as_uint(v[2]), __float_as_uint(v[3])));
        }
        __syncthreads();
        for (int e = threadIdx.x; e < 128 * MT; e += WARPS * 32) {
            auto partial = [&](int w) {
                return __uint_as_float(load_shared(shared_address(memory) + w * kScratchBytes * MT + half + e * 4));
            };
            float sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w += 2) sum += w + 1 < WARPS ? partial(w) + partial(w + 1) : partial(w);
            const int l = (e & 127) >> 2, r = e & 3;
            const int n = first_row(i) + (l >> 2) + 8 * (r >> 1), m = m0 + (e >> 7) * 8 + (l & 3) * 2 + (r & 1);
            __nv_bfloat16* const y = static_cast<__nv_bfloat16*>(p.a.y);
            if (m < p.a.M) y[((size_t)m * p.a.G + group) * N + n] = __float2bfloat16_rn(sum);
        }
    }
}

using Kernel = void (*)(Work);

template <int... FORM>
constexpr std::array<Kernel, sizeof...(FORM)> kernels(std::integer_sequence<int, FORM...>) {
    return {gemv<FORM>...};
}
template <int... FORM>
constexpr std::array<LaunchFact, sizeof...(FORM)> facts(std::integer_sequence<int, FORM...>) {
    return {launch_fact("gemv", FORM, split_of(FORM).ranges * 32, shared_bytes(FORM, true, true),
                        split_of(FORM).chunks * 4 * tiles_of(FORM))...};
}

constexpr auto kForms = std::make_integer_sequence<int, kFormCount>{};
MOET_LAUNCH_FACTS extern constexpr auto kFacts = facts(kForms);

// What is asked of a device once: its multiprocessors times the blocks of a form that one holds.
constexpr int kMostDevices = 64;
std::atomic<int> room[kMostDevices][kFormCount];

cudaError_t find_room(int form, Kernel kernel, int* blocks, int* shared) {
    int device = 0, major = 0;
    if (const cudaError_t e = cudaGetDevice(&device)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) return e;
    *shared = shared_bytes(form, kNarrow || major >= 12, major >= 12);
    std::atomic<int>* const known = device < kMostDevices ? &room[device][form] : nullptr;
    if (known && (*blocks = known->load())) return cudaSuccess;
    int multiprocessors = 0, fit = 0;
    const int threads = split_of(form).ranges * 32;
    if (const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, *shared)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)) return e;
    if (const cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, threads, *shared)) return e;
    *blocks = std::max(1, multiprocessors * fit);
    if (known) known->store(*blocks);
    return cudaSuccess;
}

int run(const Args& args, bool dependent, void* stream) {
    static constexpr auto kKernels = kernels(kForms);
    int split = 0;
    while (split < kSplitCount && kSplits[split].K != args.K) split++;
    if (split == kSplitCount) return cudaErrorInvalidValue;
    const int form = form_of(split, args.M <= 8 ? 1 : 2, args.w_swizzled);
    int blocks = 0, shared = 0;
    if (const cudaError_t e = find_room(form, kKernels[form], &blocks, &shared)) return e;
    const int rows = 8 * tiles_of(form), passes = (args.M + rows - 1) / rows * args.G;
    const int tiles = (args.N + kTileRows - 1) / kTileRows, threads = split_of(form).ranges * 32;
    const dim3 grid(std::min(tiles, std::max(1, blocks / passes)), passes);
    // If the kernel ahead leaves as much room as this one, its blocks and ours are on different multiprocessors, and to read
    // all of w first delays nothing.
    const bool apart = (int64_t)grid.x * grid.y * 4 <= (int64_t)blocks * 3;
    const int ahead = dependent && apart ? INT_MAX : split_of(form).ahead[dependent];
    const Work work{args, tiles, ahead};
    return launch(kKernels[form], work, {grid, dim3(threads), shared, dependent, static_cast<cudaStream_t>(stream)});
}

}  // namespace moet::mxfp8_gemv
