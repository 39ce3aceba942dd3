// The sparse indexer's logits over a paged cache of keys, and the schedule that shares out the work.
//
// A unit of work is 32 keys of one request, for all of its rows of q, so that a key is read once. A block has the q of one
// request at a time in shared memory, as fragments; each of its warps takes units of its own: keys arrive in the warp's ring
// by asynchronous copies, become fragments in registers, make room for the next copies, and meet every row. No warp waits
// for another until the request changes. Units never cross a page, and a key has the same place in its unit whatever the
// page size: the bits of a logit depend on its row of q, its weights and its key alone.
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <utility>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/shared.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/paged_mqa_logits/launch.h"
#include "kernels/paged_mqa_logits/products.cuh"

namespace moet::paged_mqa_logits {

constexpr int kUnit = 32;
constexpr int kHeadTiles = kHeads / 8;
// Of those whose products are in flight together: as the registers allow.
constexpr int tiles_at_once(bool native) { return native ? 2 : 4; }
constexpr int kTilesAtOnce = tiles_at_once(kNative);

// Warps of a block, how many units the ring of each holds, and how many blocks a multiprocessor should hold: where there are
// two, a dependent launch can begin.
struct Depth {
    int warps, stages, blocks;
};
struct Form {
    Format format;
    int rows;  // of q a request, at most
    Depth sm_90, sm_120;
};
constexpr Form kForms[] = {
    {Format::e4m3, 2, {12, 1, 1}, {8, 1, 2}},
    {Format::e4m3, 8, {12, 1, 1}, {12, 1, 1}},
    {Format::e2m1, 2, {12, 2, 1}, {8, 2, 2}},
    {Format::e2m1, 8, {12, 2, 1}, {12, 2, 1}},
};
constexpr int kFormCount = sizeof(kForms) / sizeof(kForms[0]);

// MOET_NARROW: a build for tests, in which the architecture that can run takes the depths of the one that cannot.
#if defined(MOET_NARROW) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200)
constexpr bool kSm120Here = true;
#else
constexpr bool kSm120Here = false;
#endif

constexpr Depth depth_of(int form, bool sm_120) { return sm_120 ? kForms[form].sm_120 : kForms[form].sm_90; }
__host__ __device__ constexpr int stage_bytes(Format format) { return kUnit * (row_bytes(format) + 4); }

// Offsets in shared memory: the rings, then the rows of q and their contexts. A row is fragments, weights and scales.
struct Layout {
    int weights, scales, row;  // of a row: where those begin, and its bytes
    int queries, contexts, bytes;
};
constexpr Layout layout_of(int form, Depth depth, bool native) {
    const Format format = kForms[form].format;
    Layout at{};
    at.weights = kHeadTiles * 128 * head_words(format, native);
    at.scales = at.weights + kHeads * 4;
    at.row = at.scales + scale_words(format, native) * 4;
    at.queries = depth.warps * depth.stages * stage_bytes(format);
    at.contexts = at.queries + kForms[form].rows * at.row;
    at.bytes = at.contexts + kMostNextN * 4;
    return at;
}

// Units that hold the keys that a row sees, which are not less than none.
__device__ __forceinline__ int units_of(int context) { return context / kUnit + (context % kUnit != 0); }

__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

// Byte offset of 16-byte column c of key r in a stage; the xor keeps copies and ldmatrix off one bank.
template <Format FORMAT>
__device__ __forceinline__ uint32_t in_stage(int r, int c) {
    if constexpr (FORMAT == Format::e4m3) return in_tile(r, c);
    return (r >> 1) * 128 + ((((r & 1) << 2 | c) ^ ((r >> 1) & 3)) << 4);
}

__device__ __forceinline__ uint4 load_shared_vector(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}

// The keys that the rows of a request see, at most.
__device__ __forceinline__ int longest(const int32_t* contexts, int request, int rows) {
    int most = 0;
#pragma unroll
    for (int j = 0; j < kMostNextN; j++)
        if (j < rows) most = max(most, (int)load_fresh_word(contexts + (size_t)request * rows + j));
    return most;
}

// What a block does of 32 requests: lane i knows how many units of request i there are for it, the first of them, and their
// place among all of them.
struct Segment {
    int first, count, begin;
    int places;  // of the 32 requests, the same in every lane
};
__device__ __forceinline__ Segment find_segment(const Args& a, int request, int2 begin, int2 end, int most) {
    Segment s{};
    const int lane = threadIdx.x & 31;
    if (request + lane < a.requests && request + lane <= end.x) {
        const int rows = a.context_a_row ? a.next_n : 1;
        const int context = min(longest(static_cast<const int32_t*>(a.contexts), request + lane, rows), most);
        s.first = request + lane == begin.x ? begin.y : 0;
        s.count = max(0, (request + lane == end.x ? min(units_of(context), end.y) : units_of(context)) - s.first);
    }
    int sum = s.count;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int below = __shfl_up_sync(~0u, sum, distance);
        if (lane >= distance) sum += below;
    }
    s.begin = sum - s.count;
    s.places = __shfl_sync(~0u, sum, 31);
    return s;
}

// Of a form, where it is compiled.
template <int FORM>
constexpr Format kFormat = kForms[FORM].format;
template <int FORM>
constexpr Depth kDepth = depth_of(FORM, kSm120Here);
template <int FORM>
constexpr Layout kLayout = layout_of(FORM, kDepth<FORM>, kNative);

template <int FORM>
__global__ void __launch_bounds__(kDepth<FORM>.warps * 32, kDepth<FORM>.blocks) logits(const Args a) {
    constexpr Format FORMAT = kFormat<FORM>;
    constexpr int WARPS = kDepth<FORM>.warps, STAGES = kDepth<FORM>.stages, STAGE = stage_bytes(FORMAT);
    constexpr int ROW_BYTES = row_bytes(FORMAT), STEPS = steps(FORMAT), VECTORS = head_words(FORMAT, kNative) / 4;
    constexpr Layout AT = kLayout<FORM>;
    static_assert(kHeads == 32 && WARPS >= kMostNextN, "a lane a weight, a warp a row of them");
    extern __shared__ __align__(128) uint8_t memory[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const uint32_t ring = shared_address(memory) + warp * STAGES * STAGE;
    const uint32_t queries = shared_address(memory) + AT.queries, contexts = shared_address(memory) + AT.contexts;
    const int page_size = 1 << a.page_shift, most = min(a.columns, a.table_width << a.page_shift);

    let_dependents_begin();
    const int32_t* const schedule = static_cast<const int32_t*>(a.schedule) + 2 * (size_t)blockIdx.x;
    const int2 begin = make_int2(max(0, (int)load_fresh_word(schedule)), max(0, (int)load_fresh_word(schedule + 1)));
    const int2 end = make_int2((int)load_fresh_word(schedule + 2), (int)load_fresh_word(schedule + 3));
    // Beside the contexts, which say whether there is anything to be found: saves a latency.
    if (begin.x < a.requests && begin.y * kUnit < most)
        prefetch(static_cast<const int32_t*>(a.tables) + begin.x * a.table_stride + (begin.y * kUnit >> a.page_shift));

#pragma unroll 1
    for (int base = begin.x; base < a.requests && base <= end.x; base += 32) {
        const Segment mine = find_segment(a, base, begin, end, most);
        if (mine.places == 0) continue;
        // Fewer units than warps: several warps to a unit, each with some of the rows. A turn is a unit and such a share.
        const int shares = 2 * mine.places > WARPS ? 1 : min(a.next_n, WARPS / mine.places), turns = mine.places * shares;
        auto place_of = [&](int turn) { return shares == 1 ? turn : turn / shares; };

        // Where keys lie, as page and quarter of it, or -1: lane i knows it of number i in each 32 of the warp's turns.
        int source = -1, next = 0;
        // Asks for the keys of the warp's next turn; a group of copies even where there is none, so that they can be counted.
        auto fill = [&](int slot) {
            if (next % 32 == 0) {
                const int place = place_of(min(warp + (next + lane) * WARPS, turns - 1));
                int owner = 0;
#pragma unroll
                for (int step = 16; step; step /= 2)
                    if (__shfl_sync(~0u, mine.begin, owner + step) <= place) owner += step;
                const int first = __shfl_sync(~0u, mine.first - mine.begin, owner), key = (first + place) * kUnit;
                const int32_t* const table = static_cast<const int32_t*>(a.tables) + (base + owner) * a.table_stride;
                const int page = (int)load_fresh_word(table + (key >> a.page_shift));
                source = (unsigned)page < (unsigned)a.pages ? page * 4 + ((key & (page_size - 1)) / kUnit) : -1;
                wait_for_prior();
            }
            if (warp + next * WARPS < turns) {
                const int from = __shfl_sync(~0u, source, next % 32);
                const bool inside = from >= 0;
                const uint8_t* const page = static_cast<const uint8_t*>(a.cache) + (inside ? (from >> 2) * a.page_stride : 0);
                const uint8_t* const values = page + (from & 3) * kUnit * ROW_BYTES + lane * 16;
                const uint32_t stage = ring + slot * STAGE;
#pragma unroll
                for (int i = 0; i < ROW_BYTES / 16; i++) {
                    // The order of columns repeats every 1024 bytes.
                    constexpr int COLUMNS = ROW_BYTES / 16;
                    const uint32_t to = i / 2 * 1024 + in_stage<FORMAT>((i % 2 * 32 + lane) / COLUMNS, lane % COLUMNS);
                    copy16(stage + to, inside ? values + i * 512 : page, inside);
                }
                if (lane < 8) {
                    const uint8_t* const scales = page + page_size * ROW_BYTES + (from & 3) * kUnit * 4 + lane * 16;
                    copy16(stage + kUnit * ROW_BYTES + lane * 16, inside ? scales : page, inside);
                }
            }
            commit_copies();
            next++;
        };

#pragma unroll 1
        for (int s = 0; s < STAGES; s++) fill(s);

        int turn = warp, slot = 0;
#pragma unroll 1
        for (unsigned left = __ballot_sync(~0u, mine.count > 0); left; left &= left - 1) {
            const int owner = __ffs(left) - 1, request = base + owner;
            const int before = __shfl_sync(~0u, mine.begin, owner), count = __shfl_sync(~0u, mine.count, owner);
            const int first = __shfl_sync(~0u, mine.first, owner) - before;
            // Loads that nothing waits for until those of q are under way too.
            uint32_t weight = 0, context = 0;
            const float* const weights = static_cast<const float*>(a.weights) + (size_t)request * a.next_n * kHeads;
            if (threadIdx.x < a.next_n * kHeads) weight = load_fresh_word(weights + threadIdx.x);
            if (threadIdx.x < a.next_n)
                context = load_fresh_word(static_cast<const int32_t*>(a.contexts) +
                                          (a.context_a_row ? (size_t)request * a.next_n + threadIdx.x : request));
            __syncthreads();
            // Rows of q become fragments, a warp 8 heads at a time.
            for (int task = warp; task < a.next_n * kHeadTiles; task += WARPS) {
                const int j = task / kHeadTiles, tile = task % kHeadTiles;
                const size_t head = ((size_t)request * a.next_n + j) * kHeads + tile * 8 + g;
                const uint8_t* const q = static_cast<const uint8_t*>(a.q) + head * ROW_BYTES + t * 4;
                uint32_t raw[STEPS][2], scales = 0;
#pragma unroll
                for (int i = 0; i < STEPS * 2; i++) raw[i / 2][i % 2] = load_fresh_word(q + i * 16);
                if (FORMAT == Format::e2m1) scales = load_fresh_word(static_cast<const uint32_t*>(a.q_scale) + head);
                const Heads<FORMAT> heads = prepare_heads<FORMAT>(raw, scales);
                const uint32_t row = queries + j * AT.row;
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    const uint32_t* const w = heads.words + v * 4;
                    store_shared(row + ((tile * VECTORS + v) * 32 + lane) * 16, make_uint4(w[0], w[1], w[2], w[3]));
                }
                if (AT.row > AT.scales && t == 0) store_shared(row + AT.scales + (tile * 8 + g) * 4, scales);
            }
            // Weights of heads 8 tile + 2 t + e go to place (t, tile, e): eight beside each other for a lane.
            if (threadIdx.x < a.next_n * kHeads) {
                const int head = lane, to = head % 8 / 2 * 8 + head / 8 * 2 + head % 2;
                store_shared(queries + warp * AT.row + AT.weights + to * 4, weight);
            }
            if (threadIdx.x < a.next_n) store_shared(contexts + threadIdx.x * 4, (uint32_t)min((int)context, most));
            __syncthreads();

#pragma unroll 1
            for (; turn < (before + count) * shares; turn += WARPS) {
                wait_for_copies<STAGES - 1>();
                __syncwarp();
                const uint32_t stage = ring + slot * STAGE;
                Keys<FORMAT> keys[2];
                uint32_t key_scales[2] = {};
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    uint32_t raw[STEPS][4];
#pragma unroll
                    for (int s = 0; s < STEPS; s++)
                        load_matrices(raw[s], stage + m * 16 * ROW_BYTES + in_stage<FORMAT>(lane & 15, 2 * s + (lane >> 4)));
                    if (FORMAT == Format::e2m1)
                        key_scales[m] = load_shared(stage + kUnit * ROW_BYTES + (m * 16 + g + 8 * (lane & 1)) * 4);
                    keys[m] = prepare_keys<FORMAT>(raw, key_scales[m]);
                }
                // The key whose logits this lane stores.
                const int key = (t & 1) * 16 + (t >> 1) * 8 + g;
                float scale = 1.f;
                if (FORMAT == Format::e4m3) scale = __uint_as_float(load_shared(stage + kUnit * ROW_BYTES + key * 4));
                __syncwarp();
                fill(slot);
                slot = slot + 1 == STAGES ? 0 : slot + 1;

                const int place = place_of(turn), at = (first + place) * kUnit;
#pragma unroll 1
                for (int j = turn - place * shares; j < a.next_n; j += shares) {
                    const int context = (int)load_shared(contexts + j * 4);
                    if (context <= at) continue;
                    const uint32_t row = queries + j * AT.row;
                    float sum[2][2] = {};
#pragma unroll kTilesAtOnce
                    for (int tile = 0; tile < kHeadTiles; tile++) {
                        Heads<FORMAT> heads;
#pragma unroll
                        for (int v = 0; v < VECTORS; v++) {
                            const uint4 words = load_shared_vector(row + ((tile * VECTORS + v) * 32 + lane) * 16);
                            heads.words[v * 4] = words.x;
                            heads.words[v * 4 + 1] = words.y;
                            heads.words[v * 4 + 2] = words.z;
                            heads.words[v * 4 + 3] = words.w;
                        }
                        uint32_t head_scales = 0;
                        if (AT.row > AT.scales) head_scales = load_shared(row + AT.scales + (tile * 8 + g) * 4);
                        const float even = __uint_as_float(load_shared(row + AT.weights + t * 32 + tile * 8));
                        const float odd = __uint_as_float(load_shared(row + AT.weights + t * 32 + tile * 8 + 4));
#pragma unroll
                        for (int m = 0; m < 2; m++) {
                            float d[4];
                            multiply<FORMAT>(d, keys[m], heads, key_scales[m], head_scales);
#pragma unroll
                            for (int h = 0; h < 2; h++) {
                                sum[m][h] = fmaf(fmaxf(d[2 * h], 0.f), even, sum[m][h]);
                                sum[m][h] = fmaf(fmaxf(d[2 * h + 1], 0.f), odd, sum[m][h]);
                            }
                        }
                    }
                    // Sums over the four lanes of a key, each of which ends up with one key.
                    float kept[2];
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const float other = __shfl_xor_sync(~0u, t & 1 ? sum[0][h] : sum[1][h], 1);
                        kept[h] = (t & 1 ? sum[1][h] : sum[0][h]) + other;
                    }
                    const float other = __shfl_xor_sync(~0u, t & 2 ? kept[0] : kept[1], 2);
                    const float total = ((t & 2 ? kept[1] : kept[0]) + other) * scale;
                    float* const out = static_cast<float*>(a.out) + ((size_t)request * a.next_n + j) * a.out_stride + at;
                    if (at + key < context) out[key] = total;
                }
            }
        }
        wait_for_copies<0>();
        __syncthreads();
    }
    wait_for_prior();
}

constexpr int kScheduleThreads = 1024;

// The sum over the threads before this one, and over all of them.
struct Sums {
    unsigned long long before, all;
};
__device__ __forceinline__ Sums sum_over_block(unsigned long long value) {
    constexpr int WARPS = kScheduleThreads / 32;
    __shared__ unsigned long long warps[WARPS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned long long sum = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const unsigned long long below = __shfl_up_sync(~0u, sum, distance);
        if (lane >= distance) sum += below;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    Sums result{sum - value, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        if (w == warp) result.before += result.all;
        result.all += warps[w];
    }
    return result;
}

// One block. Slot s gets units from floor(s total / slots) on, of the units of all requests in their order.
template <int FORM>
__global__ void __launch_bounds__(kScheduleThreads, 1) schedule(const ScheduleArgs a) {
    __shared__ unsigned long long before[kScheduleThreads];
    const int32_t* const contexts = static_cast<const int32_t*>(a.contexts);
    const int share = (a.requests + kScheduleThreads - 1) / kScheduleThreads;  // requests a thread
    let_dependents_begin();
    wait_for_prior();
    unsigned long long mine = 0;
    for (int i = 0; i < share; i++) {
        const int request = threadIdx.x * share + i;
        if (request < a.requests) mine += units_of(longest(contexts, request, a.rows));
    }
    const Sums sums = sum_over_block(mine);
    before[threadIdx.x] = sums.before;
    __syncthreads();
    for (int s = threadIdx.x; s <= a.slots; s += kScheduleThreads) {
        const unsigned long long place = s * sums.all / a.slots;
        int request = 0;
        unsigned long long unit = 0;
        if (s == a.slots) {
            request = a.requests;
        } else if (s) {
            int low = 0, high = kScheduleThreads - 1;
            while (low < high) {
                const int middle = (low + high + 1) / 2;
                if (before[middle] <= place)
                    low = middle;
                else
                    high = middle - 1;
            }
            request = min(low * share, a.requests);
            unit = place - before[low];
            for (int units; request < a.requests && unit >= (units = units_of(longest(contexts, request, a.rows))); request++)
                unit -= units;
        }
        static_cast<int2*>(a.schedule)[s] = make_int2(request, (int)unit);
    }
}

using Kernel = void (*)(Args);

template <int... FORM>
constexpr std::array<Kernel, sizeof...(FORM)> kernels(std::integer_sequence<int, FORM...>) {
    return {logits<FORM>...};
}

// On sm_120a: a unit's two tiles of 16 keys meet the tiles of 8 heads that are taken at once, in 4 steps of 32 or 2 of 64.
constexpr int matrix_instructions(int form) { return 2 * tiles_at_once(true) * (kForms[form].format == Format::e4m3 ? 4 : 2); }

template <int... FORM>
constexpr std::array<LaunchFact, sizeof...(FORM) + 1> facts(std::integer_sequence<int, FORM...>) {
    return {launch_fact("logits", FORM, depth_of(FORM, true).warps * 32, layout_of(FORM, depth_of(FORM, true), true).bytes,
                        matrix_instructions(FORM))...,
            launch_fact("schedule", 0, kScheduleThreads, 0, 0)};
}

constexpr auto kIndices = std::make_integer_sequence<int, kFormCount>{};
MOET_LAUNCH_FACTS extern constexpr auto kFacts = facts(kIndices);

// Forms that a device was told the shared memory of.
constexpr int kMostDevices = 64;
std::atomic<bool> told[kMostDevices][kFormCount];

cudaError_t prepare(int form, Kernel kernel, Depth* depth, int* shared) {
    int device = 0, major = 0;
    if (const cudaError_t e = cudaGetDevice(&device)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) return e;
#ifdef MOET_NARROW
    *depth = depth_of(form, true);
#else
    *depth = depth_of(form, major >= 12);
#endif
    *shared = layout_of(form, *depth, major >= 12).bytes;
    if (device < kMostDevices && told[device][form].load()) return cudaSuccess;
    if (const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, *shared)) return e;
    if (device < kMostDevices) told[device][form].store(true);
    return cudaSuccess;
}

int run(const Args& args, bool dependent, void* stream) {
    static constexpr auto kKernels = kernels(kIndices);
    int form = 0;
    while (kForms[form].rows < args.next_n || (kForms[form].format == Format::e2m1) != args.mxfp4)
        if (++form == kFormCount) return cudaErrorInvalidValue;
    Depth depth{};
    int shared = 0;
    if (const cudaError_t e = prepare(form, kKernels[form], &depth, &shared)) return e;
    return launch(kKernels[form], args,
                  {dim3(args.slots), dim3(depth.warps * 32), shared, dependent, static_cast<cudaStream_t>(stream)});
}

int run_schedule(const ScheduleArgs& args, bool dependent, void* stream) {
    return launch(schedule<0>, args, {dim3(1), dim3(kScheduleThreads), 0, dependent, static_cast<cudaStream_t>(stream)});
}

}  // namespace moet::paged_mqa_logits
