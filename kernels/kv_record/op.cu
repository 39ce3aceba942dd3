// Rows of numbers to the records of a paged cache, and back: rotated, quantized and written to their slots in a launch.
//
// A thread has 8 neighbouring numbers, so that a group is that of two or four neighbours, and all but the norm of a key
// goes on without waiting for more of them.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/vector.cuh"
#include "kernels/kv_record/codes.cuh"
#include "kernels/kv_record/launch.h"

namespace moet::kv_record {

constexpr int kThreads = 128;

template <int WIDTH>
constexpr Record kRecord = WIDTH == kMxfp8.width ? kMxfp8 : WIDTH == kFp4.width ? kFp4 : kKey;
// Threads of a row, and rows of a block.
template <int WIDTH>
constexpr int kParts = kRecord<WIDTH>.dims / kThreadDims;
template <int WIDTH>
constexpr int kRows = kThreads / kParts<WIDTH>;
// Threads of a group.
template <int WIDTH>
constexpr int kPartsAScale = kParts<WIDTH> / kRecord<WIDTH>.scales;

__device__ __forceinline__ int64_t load_long(const int64_t* from) {
    int64_t v;
    asm volatile("ld.global.s64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
}

// Where the thread number `part` of a row has its codes and its scale.
template <int WIDTH>
struct Place {
    uint8_t *codes, *scale;

    __device__ __forceinline__ Place(const Cache& cache, int64_t slot, int part) {
        constexpr Record kHere = kRecord<WIDTH>;
        const int at = (int)slot & ((1 << cache.shift) - 1);
        uint8_t* const page = cache.pages + (slot >> cache.shift) * cache.stride;
        codes = page + at * kHere.data + part * (kHere.data / kParts<WIDTH>);
        scale = page + (kHere.data << cache.shift) + at * kHere.scales + part / kPartsAScale<WIDTH>;
    }
};

// The sum over the threads of a key.
__device__ __forceinline__ float sum_of_row(float v) {
#pragma unroll
    for (int distance = kParts<kKey.width> / 2; distance; distance >>= 1)
        v = __fadd_rn(v, __shfl_xor_sync(~0u, v, distance));
    return v;
}

// Over the root of the mean square of the row's numbers, times the weights.
__device__ __forceinline__ void normalize(Eight& numbers, const Eight& weights, float eps) {
    float squares[kThreadDims];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        squares[2 * i] = __fmul_rn(numbers.low(i), numbers.low(i));
        squares[2 * i + 1] = __fmul_rn(numbers.high(i), numbers.high(i));
    }
#pragma unroll
    for (int count = kThreadDims / 2; count; count /= 2)
#pragma unroll
        for (int i = 0; i < count; i++) squares[i] = __fadd_rn(squares[i], squares[i + count]);
    const float inverse = __frsqrt_rn(__fadd_rn(__fmul_rn(sum_of_row(squares[0]), 1.f / kKey.dims), eps));
#pragma unroll
    for (int i = 0; i < 4; i++)
        numbers.set(i, __fmul_rn(__fmul_rn(numbers.low(i), inverse), weights.low(i)),
                    __fmul_rn(__fmul_rn(numbers.high(i), inverse), weights.high(i)));
}

constexpr int kTurned = kRopeDims / kThreadDims;  // threads

// The turn of a thread's four pairs.
struct Turn {
    float4 cos, sin;

    // Of a position; `part` is the thread's number among those that turn.
    __device__ __forceinline__ void load(const WriteArgs& p, int64_t position, int part) {
        const auto* from = reinterpret_cast<const float4*>(p.cos_sin + position * kRopeDims) + part;
        cos = from[0];
        sin = from[kRopeDims / 2 / 4];
    }

    // Every operation rounds by itself, so that the bits are the oracle's.
    __device__ __forceinline__ void apply(Eight& numbers) const {
        const float c[4] = {cos.x, cos.y, cos.z, cos.w}, s[4] = {sin.x, sin.y, sin.z, sin.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float even = numbers.low(i), odd = numbers.high(i);
            numbers.set(i, __fsub_rn(__fmul_rn(even, c[i]), __fmul_rn(odd, s[i])),
                        __fadd_rn(__fmul_rn(odd, c[i]), __fmul_rn(even, s[i])));
        }
    }
};

// Turns the numbers of a query where they are.
__device__ __forceinline__ void turn_query(const WriteArgs& p, int item) {
    const int part = item % kTurned, query = item / kTurned, token = query / p.heads;
    const int64_t position = token < p.tokens ? load_long(p.positions + token) : -1;
    wait_for_prior();
    if (position < 0 || position >= p.known) return;
    auto* const at = static_cast<__nv_bfloat16*>(p.queries) + token * p.token_stride +
                     (int64_t)(query - token * p.heads) * p.head_stride + kQueryDims - kRopeDims + part * kThreadDims;
    Eight numbers = Eight::of(load_fresh(at));
    Turn turn;
    turn.load(p, position, part);
    turn.apply(numbers);
    numbers.store(at);
}

template <int WIDTH>
__global__ void __launch_bounds__(kThreads) write(const WriteArgs p) {
    constexpr int kStill = kParts<WIDTH> - kTurned;
    const int row = blockIdx.x * kRows<WIDTH> + threadIdx.x / kParts<WIDTH>, part = threadIdx.x % kParts<WIDTH>;
    let_dependents_begin();
    if (WIDTH != kKey.width && (int)blockIdx.x >= p.blocks) {
        turn_query(p, (blockIdx.x - p.blocks) * kThreads + threadIdx.x);
        return;
    }
    const bool there = row < p.count;
    const int64_t slot = there ? load_long(p.slots + row) : -1, position = there ? load_long(p.positions + row) : 0;
    Eight weights{};
    if (WIDTH == kKey.width) weights = Eight::of(load_constant(static_cast<const uint4*>(p.weight) + part));
    wait_for_prior();
    const auto* rows = static_cast<const __nv_bfloat16*>(p.rows);
    Eight numbers{};
    if (there) numbers = Eight::of(load_fresh(rows + row * p.row_stride + part * kThreadDims));
    const bool known = position >= 0 && position < p.known;
    const bool written = slot >= 0 && slot < p.cache.places && known && ((position + 1) & (p.ratio - 1)) == 0;
    Turn turn{};
    if (part >= kStill && written) turn.load(p, position & -(int64_t)p.ratio, part - kStill);
    if constexpr (WIDTH == kKey.width) normalize(numbers, weights, p.eps);
    if (part >= kStill) turn.apply(numbers);
    const Place<WIDTH> to(p.cache, written ? slot : 0, part);
    uint32_t scale;
    if constexpr (WIDTH == kMxfp8.width) {
        const uint2 codes = encode_mxfp8(numbers, scale);
        if (written) *reinterpret_cast<uint2*>(to.codes) = codes;
    } else {
        const uint32_t codes = WIDTH == kFp4.width ? encode_fp4(numbers, scale) : encode_mxfp4(numbers, scale);
        if (written) *reinterpret_cast<uint32_t*>(to.codes) = codes;
    }
    if (written && part % kPartsAScale<WIDTH> == 0) *to.scale = (uint8_t)scale;
}

template <int WIDTH>
__global__ void __launch_bounds__(kThreads) gather(const GatherArgs p) {
    const int row = blockIdx.x * kRows<WIDTH> + threadIdx.x / kParts<WIDTH>, part = threadIdx.x % kParts<WIDTH>;
    wait_for_prior();
    if (row >= p.count) return;
    const int64_t slot = load_long(p.slots + row);
    Eight numbers{};
    if (slot >= 0 && slot < p.cache.places) {
        const Place<WIDTH> from(p.cache, slot, part);
        if constexpr (WIDTH == kMxfp8.width)
            numbers = decode_e4m3(*reinterpret_cast<const uint2*>(from.codes), from_ue8m0(*from.scale));
        else
            numbers = decode_e2m1(*reinterpret_cast<const uint32_t*>(from.codes),
                                  WIDTH == kFp4.width ? from_e4m3(*from.scale) : from_ue8m0(*from.scale));
    }
    numbers.store(static_cast<__nv_bfloat16*>(p.out) + ((int64_t)row * kParts<WIDTH> + part) * kThreadDims);
}

MOET_LAUNCH_FACTS extern constexpr LaunchFact kFacts[] = {
    launch_fact("write", kMxfp8.width, kThreads, 0, 0), launch_fact("write", kFp4.width, kThreads, 0, 0),
    launch_fact("write", kKey.width, kThreads, 0, 0),   launch_fact("gather", kMxfp8.width, kThreads, 0, 0),
    launch_fact("gather", kFp4.width, kThreads, 0, 0),  launch_fact("gather", kKey.width, kThreads, 0, 0),
};

template <int WIDTH>
int launch_write(const WriteArgs& args, bool dependent, void* stream) {
    WriteArgs p = args;
    p.blocks = (p.count + kRows<WIDTH> - 1) / kRows<WIDTH>;
    const int turns = p.queries ? p.tokens * p.heads * kTurned : 0;
    const dim3 grid(p.blocks + (turns + kThreads - 1) / kThreads);
    return launch(write<WIDTH>, p, {grid, dim3(kThreads), 0, dependent, static_cast<cudaStream_t>(stream)});
}

int run(const WriteArgs& args, int width, bool dependent, void* stream) {
    if (width == kMxfp8.width) return launch_write<kMxfp8.width>(args, dependent, stream);
    if (width == kFp4.width) return launch_write<kFp4.width>(args, dependent, stream);
    return launch_write<kKey.width>(args, dependent, stream);
}

template <int WIDTH>
int launch_gather(const GatherArgs& args, void* stream) {
    const dim3 grid((args.count + kRows<WIDTH> - 1) / kRows<WIDTH>);
    return launch(gather<WIDTH>, args, {grid, dim3(kThreads), 0, false, static_cast<cudaStream_t>(stream)});
}

int run_gather(const GatherArgs& args, int width, void* stream) {
    if (width == kMxfp8.width) return launch_gather<kMxfp8.width>(args, stream);
    if (width == kFp4.width) return launch_gather<kFp4.width>(args, stream);
    return launch_gather<kKey.width>(args, stream);
}

}  // namespace moet::kv_record
