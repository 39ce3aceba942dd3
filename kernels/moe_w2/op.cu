// out[m, j, :] = x[m, j, :] w[ids[m, j]]^T over experts of 2-bit codes, or of FP4 where an expert has a slot of those: few
// rows, so that reading weights is all that takes time.
//
// Weights are the A operand, in whose order their planes are; pairs of row and expert the B operand, eight columns. A block has
// a run of items, 16 rows of weights of one expert each, and its warps share K. Planes pass through a ring in shared memory
// that is a warp's own, across items and experts: no barrier until an item's sum over the warps. Who sums which k, and in
// which order, follows from K (split.h): the bits of a pair's result depend on its x, its expert's weights and K alone.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/shared.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/moe_w2/decode.cuh"
#include "kernels/moe_w2/grouping.cuh"
#include "kernels/moe_w2/launch.h"
#include "kernels/moe_w2/split.h"

namespace moet::moe_w2 {

constexpr int kMostThreads = kMostWarps * 32;
static_assert(kMostThreads >= kMostPairs);

// A stage has 512 bytes of planes, which are 128 columns of codes or 64 of nibbles, and their scales.
constexpr int kPlaneBytes = 512, kStageBytes = kPlaneBytes + 64;
// A warp's results of 16 rows, of as many items as share a barrier, twice.
constexpr int kScratchBytes = 2048, kResultBytes = kUnitN * kColumns * 4, kBatch = kScratchBytes / (2 * kResultBytes);
constexpr int stages(bool sm_120) { return sm_120 ? 4 : 6; }

// Threads of a block, more than its warps that have columns where those are fewer than the pairs.
constexpr int threads_of(int K) { return std::max(split_of(K).warps * 32, kMostPairs); }
// x and its scales, rings, results.
constexpr int shared_bytes(int K, bool sm_120, bool native) {
    const int ring = stages(sm_120) * kStageBytes;
    const int x = K / 32 * columns(native) * (x_bytes(native) + x_scale_bytes(native));
    return x + split_of(K).warps * (ring + kScratchBytes + table_bytes(native));
}
constexpr int most_shared_bytes(bool sm_120, bool native) {
    int most = 0;
    for (int K = kUnitK; K <= kMostK; K += kUnitK) most = std::max(most, shared_bytes(K, sm_120, native));
    return most;
}

// MOET_NARROW: a build for tests, in which the architecture that can run takes the stages of the one that cannot.
#ifdef MOET_NARROW
constexpr bool kNarrow = true;
#else
constexpr bool kNarrow = false;
#endif
constexpr int kStages = stages(kNative || kNarrow);
constexpr int kBlocks = kNative ? 1 : 3;  // a multiprocessor

// Forms: without a delta, and with one.
constexpr int kFormCount = 2;

struct Work {
    Args a;
    int tiles, part_tiles;  // of 16 rows, an expert: all, and those of a part
    int warps, each;        // split_of(K)
};

// Where in the weights a warp is: asks for the stages of its columns, item after item.
template <bool DELTA>
struct Ahead {
    const Work& p;
    const Grouping& s;
    int items, group, tile;   // left, this one's included; this one
    int first, blocks, left;  // of 64 columns: the warp's, and those of this item not asked for
    const uint8_t *planes, *scales;
    bool is_delta;

    __device__ __forceinline__ int block_bytes() const { return is_delta ? 512 : 256; }

    // The tile of the group, wherever the warp was.
    __device__ __forceinline__ void enter(int lane) {
        const Group& g = s.groups[group];
        is_delta = DELTA && g.is_delta;
        const Weights& weights = is_delta ? p.a.delta : p.a.base;
        const Weights& scaled = is_delta && p.a.delta_has_scales ? p.a.delta : p.a.base;
        const int part = tile >= p.part_tiles, inside = tile - part * p.part_tiles;
        const int64_t block = (int64_t)inside * (p.a.K / kUnitK) + first;
        planes = static_cast<const uint8_t*>(weights.planes) + g.slot * weights.plane_slot + part * weights.plane_part +
                 block * block_bytes() + lane * 16;
        scales = static_cast<const uint8_t*>(scaled.scales) + g.scale_slot * scaled.scale_slot + part * scaled.scale_part +
                 block * 32 + lane * 16;
    }

    __device__ __forceinline__ void next(int lane) {
        items--, tile++, left = blocks;
        const bool is_other = tile == p.tiles;
        if (is_other) tile = 0, group++;
        if (is_other || tile == p.part_tiles) {
            if (items > 0) enter(lane);
        } else {
            const int others = p.a.K / kUnitK - blocks;
            planes += others * block_bytes(), scales += others * 32;
        }
    }

    // Copies the next stage, if there is one, as a group of copies even where there is none.
    __device__ __forceinline__ void fill(uint32_t stage, int lane) {
        if (items > 0) {
            const int here = is_delta ? 1 : min(left, 2), bytes = here * block_bytes();
            if (lane * 16 < bytes) copy16(stage + lane * 16, planes);
            if (lane < 2 * here) copy16(stage + kPlaneBytes + lane * 16, scales);
            planes += bytes, scales += here * 32, left -= here;
            if (left == 0) next(lane);
        }
        commit_copies();
    }
};

// x of a group, as fragments of a warp's columns, [step][column][t]; anything where the group has no column.
__device__ __forceinline__ void load_x(const Args& p, const Group& g, uint32_t x, uint32_t x_scales, int first, int steps,
                                       int lane) {
    constexpr int kLanes = 32 / kColumns;  // a column
    const int column = lane / kLanes;
    if (column < g.count) {
        const int pair = g.columns[column], row = pair / p.top, slot = pair - row * p.top;
        const uint8_t* const codes = static_cast<const uint8_t*>(p.x) + row * p.x_row + slot * p.x_pair;
        const uint8_t* const scales = static_cast<const uint8_t*>(p.x_scale) + row * p.x_scale_row + slot * p.x_scale_pair;
#pragma unroll 4
        for (int step = first + lane % kLanes; step < first + steps; step += kLanes) {
            const uint4 a = load_fresh(codes + step * 32), b = load_fresh(codes + step * 32 + 16);
            uint32_t scale;
            asm volatile("ld.global.u8 %0, [%1];" : "=r"(scale) : "l"(scales + step) : "memory");
            store_x(x, x_scales, step, column, a, b, scale);
        }
    }
    __syncwarp();
}

__device__ __forceinline__ void store_result(const Args& p, int64_t at, float v) {
    if (p.out_is_float)
        static_cast<float*>(p.out)[at] = v;
    else
        static_cast<__nv_bfloat16*>(p.out)[at] = __float2bfloat16_rn(v);
}

// Zeros where a pair has no weights, and their count.
__device__ __forceinline__ void write_absent(const Args& p, const Grouping& s, int N) {
    if (blockIdx.x == 0 && threadIdx.x < kPairWords && s.missing[threadIdx.x])
        atomicAdd(p.missing, __popc(s.missing[threadIdx.x]));
#pragma unroll 1
    for (int w = 0; w < kPairWords; w++)
#pragma unroll 1
        for (uint32_t left = s.absent[w]; left; left &= left - 1) {
            const int pair = 32 * w + __ffs(left) - 1;
            for (int n = blockIdx.x * blockDim.x + threadIdx.x; n < N; n += gridDim.x * blockDim.x)
                store_result(p, (int64_t)pair * N + n, 0.f);
        }
}

template <int FORM>
__global__ void __launch_bounds__(kMostThreads, kBlocks) grouped(const Work p) {
    constexpr bool DELTA = FORM != 0;
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ Grouping s;
    const int lane = (int)held(threadIdx.x & 31), warp = __shfl_sync(~0u, threadIdx.x >> 5, 0);
    const int K = p.a.K, N = p.tiles * kUnitN;
    const uint32_t x = shared_address(memory), x_scales = x + K / 32 * kStepBytes;
    const uint32_t results = x_scales + K / 32 * kStepScaleBytes;
    const uint32_t tables = results + p.warps * kScratchBytes, table = tables + warp * table_bytes(kNative);
    const uint32_t ring = tables + p.warps * table_bytes(kNative) + warp * kStages * kStageBytes;
    const int first = warp * p.each, blocks = warp < p.warps ? min(p.each, K / kUnitK - first) : 0;

    let_dependents_begin();
    if (!p.a.routed) wait_for_prior();
    group_pairs(p.a, p.tiles, s);
    const int items = s.end - s.begin;
    Ahead<DELTA> ahead{p, s, blocks ? items : 0, s.begin / p.tiles, s.begin % p.tiles, first, blocks, blocks, nullptr, nullptr,
                       false};
    if (ahead.items > 0) ahead.enter(lane);
#pragma unroll 1
    for (int stage = 0; stage < kStages; stage++) ahead.fill(ring + stage * kStageBytes, lane);
    if (p.a.routed) wait_for_prior();
    write_absent(p.a, s, N);

    int group = s.begin / p.tiles, tile = s.begin % p.tiles, loaded = -1;
    uint32_t stage = ring;
    const Levels levels;
    const auto advance = [&] { stage = stage + kStageBytes == ring + kStages * kStageBytes ? ring : stage + kStageBytes; };
    // Batches take turns with two halves of the results, so that one barrier each is enough.
    uint32_t half = results;
#pragma unroll 1
    for (int i = 0; i < items; i += kBatch) {
        const int here = min(kBatch, items - i);
#pragma unroll 1
        for (int j = 0; j < here; j++) {
            const Group& g = s.groups[group];
            if (group != loaded) {
                if (blocks) load_x(p.a, g, x, x_scales, first * 2, blocks * 2, lane);
                loaded = group;
            }
            Sums sums;
            if (!DELTA || !g.is_delta) {
#pragma unroll 1
                for (int block = 0; block < blocks; block += 2) {
                    wait_for_copies<kStages - 1>();
                    __syncwarp();
                    const uint2 low = load_shared_pair(stage + lane * 8), high = load_shared_pair(stage + 256 + lane * 8);
                    RowScales<2, false> rows;
                    rows.load(stage + kPlaneBytes, table, lane);
                    rows.prepare(table, lane);
                    __syncwarp();
                    ahead.fill(stage, lane);
                    advance();
                    const int step = (first + block) * 2;
                    multiply<0>(sums, low, rows, levels, x, x_scales, step, lane);
                    if (block + 1 < blocks) multiply<1>(sums, high, rows, levels, x, x_scales, step + 2, lane);
                }
            } else {
#pragma unroll 1
                for (int block = 0; block < blocks; block++) {
                    wait_for_copies<kStages - 1>();
                    __syncwarp();
                    const uint4 nibbles = load_shared_quad(stage + lane * 16);
                    RowScales<1, true> rows;
                    rows.load(stage + kPlaneBytes, table, lane);
                    rows.prepare(table, lane);
                    __syncwarp();
                    ahead.fill(stage, lane);
                    advance();
                    multiply(sums, nibbles, rows, levels, x, x_scales, (first + block) * 2, lane);
                }
            }
            float d[4];
            sums.total(d);
            const uint32_t to = half + warp * kScratchBytes + j * kResultBytes;
            const uint4 words =
                make_uint4(__float_as_uint(d[0]), __float_as_uint(d[1]), __float_as_uint(d[2]), __float_as_uint(d[3]));
            if (blocks && (lane & 3) < kColumns / 2)
                store_shared(to + ((lane >> 2) * (kColumns / 2) + (lane & 3)) * 16, words);
            if (++tile == p.tiles) tile = 0, group++;
        }
        __syncthreads();
        for (int e = threadIdx.x; e < here * kColumns * kUnitN; e += blockDim.x) {
            const int j = e / (kColumns * kUnitN), column = e / kUnitN % kColumns, row = e % kUnitN, item = s.begin + i + j;
            const Group& g = s.groups[item / p.tiles];
            if (column >= g.count) continue;
            const int place = (row & 7) * (kColumns / 2) + (column >> 1), number = (row >> 3) * 2 + (column & 1);
            const uint32_t from = half + j * kResultBytes + place * 16 + number * 4;
            float sum = 0.f;
#pragma unroll 4
            for (int w = 0; w < p.warps; w++) sum += __uint_as_float(load_shared(from + w * kScratchBytes));
            store_result(p.a, (int64_t)g.columns[column] * N + item % p.tiles * kUnitN + row, sum);
        }
        half = results + (half == results ? kBatch * kResultBytes : 0);
    }
}

using Kernel = void (*)(Work);
constexpr Kernel kKernels[kFormCount] = {grouped<0>, grouped<1>};

MOET_LAUNCH_FACTS extern constexpr LaunchFact kFacts[kFormCount] = {
    launch_fact("grouped", 0, kMostThreads, most_shared_bytes(true, true), 4),
    launch_fact("grouped", 1, kMostThreads, most_shared_bytes(true, true), 6),
};

// What is asked of a device once: its multiprocessors times the blocks that one holds.
constexpr int kMostDevices = 64;
std::atomic<int> room[kMostDevices][kFormCount][kMostK / kUnitK + 1];

cudaError_t find_room(int form, int K, int* blocks, int* shared) {
    int device = 0, major = 0;
    if (const cudaError_t e = cudaGetDevice(&device)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) return e;
    const bool native = major >= 12;
    *shared = shared_bytes(K, kNarrow || native, native);
    std::atomic<int>* const known = device < kMostDevices ? &room[device][form][K / kUnitK] : nullptr;
    if (known && (*blocks = known->load())) return cudaSuccess;
    int multiprocessors = 0, fit = 0;
    const int most = most_shared_bytes(kNarrow || native, native);
    const Kernel kernel = kKernels[form];
    if (const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)) return e;
    if (const cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, threads_of(K), *shared)) return e;
    *blocks = std::max(1, multiprocessors * fit);
    if (known) known->store(*blocks);
    return cudaSuccess;
}

int run(const Args& args, bool dependent, void* stream) {
    const int form = args.delta.table ? 1 : 0;
    int blocks = 0, shared = 0;
    if (const cudaError_t e = find_room(form, args.K, &blocks, &shared)) return e;
    const Split split = split_of(args.K);
    const int part_tiles = args.N / kUnitN, tiles = part_tiles * args.parts;
    const int64_t items = static_cast<int64_t>(tiles) * args.M * args.top;
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>(blocks, items)));
    const Work work{args, tiles, part_tiles, split.warps, split.each};
    return launch(kKernels[form], work, {grid, dim3(threads_of(args.K)), shared, dependent, static_cast<cudaStream_t>(stream)});
}

}  // namespace moet::moe_w2
