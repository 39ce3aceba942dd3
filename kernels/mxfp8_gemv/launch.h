// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::mxfp8_gemv {

constexpr int kMostRows = 64;   // of x, a group
constexpr int kLeastColumns = 16;  // of y: rows of w, a group
constexpr int kKs[] = {576, 1280, 2048, 4096, 5120};

// y[M, G, N] = x[M, G, K] w[G, N, K]^T: E4M3 with one UE8M0 scale a row and 32 k; all contiguous.
struct Args {
    const void* x;
    const void* x_scale;
    const void* w;
    const void* w_scale;
    void* y;  // bf16
    int M, G, N, K;
    bool swizzled;  // both scales: F8_128x4, else [rows, K / 32]
};

// Returns a cudaError_t.
int run(const Args& args, bool dependent, void* stream);

}  // namespace moet::mxfp8_gemv
