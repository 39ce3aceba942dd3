// y[M, G, N] = x[M, G, K] w[G, N, K]^T, MXFP8: few rows of x, so that reading w is all that takes time.
//
// Weights are the A operand (16 rows of w), rows of x the B operand (8 columns): up to 8 rows of x cost no padding. A block
// owns 16 rows of w and all of K, a warp of it some chunks of 128 k. x is the same for every tile, so its fragments stay in
// registers while tiles of w stream past through the warp's own ring in shared memory: no barrier until a tile's sum over
// the warps. That sum is in the order of the warps, and who owns which k follows from K: the bits of a row of y depend on
// its row of x, on w and on K alone.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/mma_policy.cuh"
#include "kernels/common/scale_layout.cuh"
#include "kernels/common/shared.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/mxfp8_gemv/launch.h"

namespace moet::mxfp8_gemv {

constexpr int kTileRows = 16, kChunk = 128;
constexpr int kStageBytes = kTileRows * kChunk + kTileRows * 4;  // weights, then a word of scales a row
constexpr int kScratchBytes = 1024;                              // a warp and 8 rows of x

// How many places the ring of a warp has, and how many blocks a multiprocessor should hold.
struct Depth {
    int stages, blocks;
};

// What K decides: warps times chunks cover it. Then the depths, for up to 8 rows of x and for more, by architecture.
struct Split {
    int K, warps, chunks;
    Depth sm_90[2], sm_120[2];
    int ahead[2];  // stages filled before x is read: in a plain and in a dependent launch
};
constexpr Split kSplits[] = {
    {5120, 8, 5, {{5, 1}, {5, 1}}, {{2, 2}, {4, 1}}, {1, 2}},
    {4096, 8, 4, {{4, 1}, {4, 1}}, {{2, 2}, {3, 1}}, {1, 2}},
    {2048, 8, 2, {{2, 2}, {2, 2}}, {{2, 2}, {2, 2}}, {1, 1}},
    {1280, 10, 1, {{2, 2}, {2, 2}}, {{2, 1}, {2, 1}}, {0, 1}},
    {576, 5, 1, {{3, 3}, {3, 3}}, {{3, 2}, {2, 2}}, {0, 2}},
};
constexpr int kSplitCount = sizeof(kSplits) / sizeof(kSplits[0]);

// A form is a split, 8 or 16 rows of x at a time, and a layout of the scales.
constexpr int kFormCount = kSplitCount * 4;
constexpr int form_of(int split, int tiles, bool swizzled) { return split * 4 + (tiles - 1) * 2 + swizzled; }
constexpr const Split& split_of(int form) { return kSplits[form / 4]; }
constexpr int tiles_of(int form) { return form / 2 % 2 + 1; }
constexpr bool swizzled_in(int form) { return form % 2; }
constexpr Depth depth_of(int form, bool sm_120) {
    return sm_120 ? split_of(form).sm_120[tiles_of(form) - 1] : split_of(form).sm_90[tiles_of(form) - 1];
}
constexpr int shared_bytes(int form, bool sm_120) {
    return split_of(form).warps * (depth_of(form, sm_120).stages * kStageBytes + kScratchBytes * tiles_of(form));
}

// MOET_NARROW: a build for tests, in which the architecture that can run takes the depths of the one that cannot.
#if defined(MOET_NARROW) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200)
constexpr bool kSm120Here = true;
#else
constexpr bool kSm120Here = false;
#endif

// Of a form, where it is compiled.
template <int FORM>
constexpr Split kSplit = split_of(FORM);
template <int FORM>
constexpr Depth kDepth = depth_of(FORM, kSm120Here);
template <int FORM>
constexpr int kTiles = tiles_of(FORM);
template <int FORM>
constexpr bool kSwizzled = swizzled_in(FORM);

struct Work {
    Args a;
    int tiles;  // of 16 rows of w, a group
    int ahead;
};

template <int FORM>
__global__ void __launch_bounds__(kSplit<FORM>.warps * 32, kDepth<FORM>.blocks) gemv(const Work p) {
    constexpr int WARPS = kSplit<FORM>.warps, CHUNKS = kSplit<FORM>.chunks, MT = kTiles<FORM>;
    constexpr int STAGES = kDepth<FORM>.stages, K = kSplit<FORM>.K;
    constexpr bool SWIZZLED = kSwizzled<FORM>, TAIL = K % kChunk != 0;
    extern __shared__ __align__(128) uint8_t memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int group = blockIdx.y % p.a.G, m0 = blockIdx.y / p.a.G * 8 * MT, N = p.a.N;
    const int chunk0 = warp * CHUNKS, row4 = lane >> 3, column = lane & 7;
    const uint32_t scratch = shared_address(memory) + warp * kScratchBytes * MT;
    const uint32_t ring = shared_address(memory) + WARPS * kScratchBytes * MT + warp * STAGES * kStageBytes;
    const uint8_t* const weights =
        static_cast<const uint8_t*>(p.a.w) + ((size_t)group * N + row4) * K + (size_t)chunk0 * kChunk + column * 16;
    const uint8_t* const weight_scales = static_cast<const uint8_t*>(p.a.w_scale);
    const int mine = (p.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;

    // The last tile ends where w ends: rows that the one before has too come out with the same bits.
    auto first_row = [&](int i) { return min(((int)blockIdx.x + i * (int)gridDim.x) * kTileRows, N - kTileRows); };
    auto k_left = [&](int c) { return TAIL ? min(kChunk, K - (chunk0 + c) * kChunk) : kChunk; };

    // Asks for chunk c of this block's tile i; a group of copies even where there is none, so that they can be counted.
    auto fill = [&](int i, int c, int slot) {
        if (i < mine) {
            const uint32_t stage = ring + slot * kStageBytes;
            const int n0 = first_row(i);
            const uint8_t* from = weights + (size_t)n0 * K + c * kChunk;
            const bool inside = !TAIL || column * 16 < k_left(c);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint8_t* source = from + (size_t)(4 * j) * K;
                copy16(stage + in_tile(row4 + 4 * j, column), inside ? source : weights, inside);
            }
            if (lane < kTileRows) {
                const uint8_t* scales = weight_scales + scale_word<SWIZZLED>(group * N + n0 + lane, chunk0 + c, K);
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
                raw[c][i] = load_fresh(static_cast<const uint8_t*>(p.a.x) + ((size_t)m * p.a.G + group) * K +
                                       (size_t)(chunk0 + c) * kChunk + column * 16);
        }
    // Lane 4 n + c holds the scales of row n of x, chunk c.
    uint32_t x_words[(CHUNKS + 3) / 4][MT];
#pragma unroll
    for (int i = 0; i < (CHUNKS + 3) / 4; i++)
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
            const int m = m0 + mt * 8 + g, c = i * 4 + t;
            x_words[i][mt] = 0;
            if (m < p.a.M && c < CHUNKS) {
                const uint8_t* scales =
                    static_cast<const uint8_t*>(p.a.x_scale) + scale_word<SWIZZLED>(m * p.a.G + group, chunk0 + c, K);
                x_words[i][mt] = !SWIZZLED && TAIL ? load_scales(scales, k_left(c) / 32) : load_fresh_word(scales);
            }
        }
    __syncwarp();  // or ptxas moves the loads of x behind the copies that follow
#pragma unroll
    for (int s = 0; s < STAGES; s++)
        if (s >= p.ahead) fill(s / CHUNKS, s % CHUNKS, s);

    uint32_t b[CHUNKS * 4][MT][2];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) store_shared(scratch + in_tile(i * 4 + row4, column), raw[c][i]);
        __syncwarp();
#pragma unroll
        for (int mt = 0; mt < MT; mt++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t v[4];
                load_matrices(v, scratch + mt * kScratchBytes + in_tile(lane & 7, h * 4 + (lane >> 3)));
                b[c * 4 + 2 * h][mt][0] = v[0];
                b[c * 4 + 2 * h][mt][1] = v[1];
                b[c * 4 + 2 * h + 1][mt][0] = v[2];
                b[c * 4 + 2 * h + 1][mt][1] = v[3];
            }
        __syncwarp();
    }

    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < mine; i++) {
        float d[MT][4] = {};
        auto chunk = [&](auto index) {
            constexpr int c = decltype(index)::value, TB = c & 3;
            wait_for_copies<STAGES - 1>();
            __syncwarp();
            const uint32_t stage = ring + slot * kStageBytes;
            uint32_t a[4][4];
#pragma unroll
            for (int j = 0; j < 4; j++) load_matrices(a[j], stage + in_tile(lane & 15, 2 * j + (lane >> 4)));
            const uint32_t word = load_shared(stage + kTileRows * kChunk + (g + 8 * (lane & 1)) * 4);
            __syncwarp();
            fill(i + (c + STAGES) / CHUNKS, (c + STAGES) % CHUNKS, slot);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
            const ScaleA sa = prepare_a(word);
            const int steps = k_left(c) / 32;
#pragma unroll
            for (int mt = 0; mt < MT; mt++) {
                const ScaleB sb = prepare_b<TB>(x_words[c >> 2][mt]);
                mma_mx<0, TB>(d[mt], a[0], b[c * 4][mt], sa, sb);
                if (steps > 1) mma_mx<1, TB>(d[mt], a[1], b[c * 4 + 1][mt], sa, sb);
                if (steps > 2) mma_mx<2, TB>(d[mt], a[2], b[c * 4 + 2][mt], sa, sb);
                if (steps > 3) mma_mx<3, TB>(d[mt], a[3], b[c * 4 + 3][mt], sa, sb);
            }
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
            float sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                sum += __uint_as_float(load_shared(shared_address(memory) + w * kScratchBytes * MT + half + e * 4));
            const int l = (e & 127) >> 2, r = e & 3;
            const int n = first_row(i) + (l >> 2) + 8 * (r >> 1), m = m0 + (e >> 7) * 8 + (l & 3) * 2 + (r & 1);
            if (m < p.a.M) static_cast<__nv_bfloat16*>(p.a.y)[((size_t)m * p.a.G + group) * N + n] = __float2bfloat16_rn(sum);
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
    return {launch_fact("gemv", FORM, split_of(FORM).warps * 32, shared_bytes(FORM, true),
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
#ifdef MOET_NARROW
    *shared = shared_bytes(form, true);
#else
    *shared = shared_bytes(form, major >= 12);
#endif
    std::atomic<int>* const known = device < kMostDevices ? &room[device][form] : nullptr;
    if (known && (*blocks = known->load())) return cudaSuccess;
    int multiprocessors = 0, fit = 0;
    const int threads = split_of(form).warps * 32;
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
    const int form = form_of(split, args.M <= 8 ? 1 : 2, args.swizzled);
    int blocks = 0, shared = 0;
    if (const cudaError_t e = find_room(form, kKernels[form], &blocks, &shared)) return e;
    const int rows = 8 * tiles_of(form), passes = (args.M + rows - 1) / rows * args.G;
    const Work work{args, (args.N + kTileRows - 1) / kTileRows, std::min(split_of(form).ahead[dependent], depth_of(form, true).stages)};
    const dim3 grid(std::min(work.tiles, std::max(1, blocks / passes)), passes);
    return launch(kKernels[form], work, {grid, dim3(split_of(form).warps * 32), shared, dependent, static_cast<cudaStream_t>(stream)});
}

}  // namespace moet::mxfp8_gemv
