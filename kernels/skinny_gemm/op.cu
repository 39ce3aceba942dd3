// y[M, N] = x[M, K] w[N, K]^T: bf16 operands, fp32 sums, few rows of x, few of w.
//
// One or two 16-byte loads a thread and row cover all of K, so every load of a block is in flight at once, and the kernel
// is one memory latency, one sum over the block and one store long. A block makes a tile of outputs: how large it is
// follows from the problem and the GPU, but every output is summed in one order, which follows from K alone. So a row
// of y has the same bits whatever else is in the batch, on every run.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/common/dependent.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/common/vector.cuh"
#include "kernels/common/warp_sum.cuh"
#include "kernels/skinny_gemm/launch.h"

namespace moet::skinny_gemm {

constexpr int kMostThreads = 640, kMostWarps = kMostThreads / 32;

// A block makes w_rows x (x_rows * passes) outputs; a thread loads `vectors` times 16 bytes of a row.
struct Form {
    int w_rows, x_rows, passes, vectors;
};

constexpr Form kForms[] = {
    {1, 1, 1, 1}, {1, 2, 1, 1}, {2, 2, 1, 1}, {2, 4, 1, 1}, {4, 4, 1, 1}, {3, 6, 1, 1}, {3, 8, 1, 1}, {3, 8, 2, 1},
    {1, 1, 1, 2}, {1, 2, 1, 2}, {2, 2, 1, 2}, {2, 4, 1, 2}, {2, 4, 2, 2},
};
constexpr int kFormCount = sizeof(kForms) / sizeof(kForms[0]);

template <int FORM>
__global__ void __launch_bounds__(kMostThreads) gemm(const Args p) {
    constexpr int R = kForms[FORM].w_rows, C = kForms[FORM].x_rows, T = kForms[FORM].passes, V = kForms[FORM].vectors;
    __shared__ float partial[kMostWarps][R * T * C];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int n0 = blockIdx.x * R, m0 = blockIdx.y * (T * C);
    const uint4 zero = make_uint4(0, 0, 0, 0);

    let_dependents_begin();
    int at[V];
    bool inside[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        at[v] = (v * (int)blockDim.x + (int)threadIdx.x) * kUnit;
        inside[v] = at[v] < p.K;
    }
    uint4 w[R][V];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const __nv_bfloat16* row = static_cast<const __nv_bfloat16*>(p.w) + (n0 + r) * p.w_stride;
#pragma unroll
        for (int v = 0; v < V; v++) w[r][v] = n0 + r < p.N && inside[v] ? load_constant(row + at[v]) : zero;
    }
    __syncwarp();  // or ptxas moves the loads of w behind the wait
    wait_for_prior();
#pragma unroll 1
    for (int t = 0; t < T; t++) {
        uint4 x[C][V];
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int m = m0 + t * C + c;
            const __nv_bfloat16* row = static_cast<const __nv_bfloat16*>(p.x) + m * p.x_stride;
#pragma unroll
            for (int v = 0; v < V; v++) x[c][v] = m < p.M && inside[v] ? load_fresh(row + at[v]) : zero;
        }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float sums[C] = {};
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll
                for (int v = 0; v < V; v++) sums[c] = dot8(w[r][v], x[c][v], sums[c]);
            const float sum = warp_sums(sums, lane);
            if (first_of_sum<C>(lane)) partial[warp][r * T * C + t * C + index_of_sum<C>(lane)] = sum;
        }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < R * T * C; i += blockDim.x) {
        const int n = n0 + i / (T * C), m = m0 + i % (T * C);
        float total = 0.f;
#pragma unroll
        for (int w = 0; w < kMostWarps; w++)
            if (w < warps) total += partial[w][i];
        if (n < p.N && m < p.M) {
            if (p.y_is_float)
                static_cast<float*>(p.y)[m * p.y_stride + n] = total;
            else
                static_cast<__nv_bfloat16*>(p.y)[m * p.y_stride + n] = __float2bfloat16_rn(total);
        }
    }
}

using Kernel = void (*)(Args);

template <int... FORM>
constexpr std::array<Kernel, sizeof...(FORM)> kernels(std::integer_sequence<int, FORM...>) {
    return {gemm<FORM>...};
}
template <int... FORM>
constexpr std::array<LaunchFact, sizeof...(FORM)> facts(std::integer_sequence<int, FORM...>) {
    return {launch_fact("gemm", FORM, kMostThreads, 0, 0)...};
}

MOET_LAUNCH_FACTS extern constexpr auto kFacts = facts(std::make_integer_sequence<int, kFormCount>{});

// About how many cycles the busiest multiprocessor takes; only compared with each other.
int64_t cost(const Form& f, dim3 grid, const Args& args, int threads, int multiprocessors) {
    constexpr int kBytesACycle = 64, kCyclesABlock = 25, kCyclesAProduct = 29, kCyclesAProductAlone = 100;
    const int x_rows = f.x_rows * f.passes;
    const int64_t in_turn = ((int64_t)grid.x * grid.y + multiprocessors - 1) / multiprocessors;
    const int64_t bytes = (f.w_rows + std::min(x_rows, args.M)) * args.K * 2;
    const int64_t products = (int64_t)f.w_rows * x_rows * f.vectors;
    const int64_t issue = in_turn * products * kCyclesAProduct * threads / 128, latency = products * kCyclesAProductAlone;
    return in_turn * (bytes / kBytesACycle + kCyclesABlock) + std::max(issue, latency);
}

int run(const Args& args, bool dependent, void* stream) {
    static constexpr auto kKernels = kernels(std::make_integer_sequence<int, kFormCount>{});
    const int loads = args.K / kUnit, vectors = loads <= kMostThreads ? 1 : 2;
    const int threads = ((loads + vectors - 1) / vectors + 31) / 32 * 32;
    int device = 0, multiprocessors = 0;
    if (const cudaError_t e = cudaGetDevice(&device)) return e;
    if (const cudaError_t e = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)) return e;

    int64_t least = INT64_MAX;
    int form = 0;
    dim3 grid;
    for (int i = 0; i < kFormCount; i++) {
        const Form& f = kForms[i];
        if (f.vectors != vectors) continue;
        const int x_rows = f.x_rows * f.passes;
        const dim3 blocks((args.N + f.w_rows - 1) / f.w_rows, (args.M + x_rows - 1) / x_rows);
        const int64_t cycles = cost(f, blocks, args, threads, multiprocessors);
        if (cycles < least) least = cycles, form = i, grid = blocks;
    }
    return launch(kKernels[form], args, {grid, dim3(threads), 0, dependent, static_cast<cudaStream_t>(stream)});
}

}  // namespace moet::skinny_gemm
