// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::skinny_gemm {

constexpr int kMostRows = 16;     // of x
constexpr int kUnit = 8;          // K is a multiple of it: 16 bytes of bf16
constexpr int kMostK = 2 * 640 * kUnit;

// y[M, N] = x[M, K] w[N, K]^T. Strides are of rows, in elements.
struct Args {
    const void* x;
    const void* w;
    void* y;
    int64_t x_stride, w_stride, y_stride;
    int M, N, K;
    bool y_is_float;  // else bf16
};

// Returns a cudaError_t.
int run(const Args& args, bool dependent, void* stream);

}  // namespace moet::skinny_gemm
