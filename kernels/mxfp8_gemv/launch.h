// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::mxfp8_gemv {

constexpr int kMostRows = 64;      // of x, a group
constexpr int kLeastColumns = 16;  // of y: rows of w, a group
constexpr int kKs[] = {288, 576, 1024, 1152, 1280, 2048, 2304, 4096, 5120, 8192};

// y[M, G, N] = x[M, G, K] w[G, N, K]^T: E4M3 with one UE8M0 scale a row and 32 k. w, w_scale and y are contiguous.
struct Args {
    const void* x;
    const void* x_scale;
    const void* w;
    const void* w_scale;
    void* y;                    // bf16
    int64_t x_row, x_group;     // bytes from a row of x, and from a group, to the next
    int64_t x_scale_row, x_scale_group, x_scale_chunk;  // likewise, and from 128 k to the next; unless x_swizzled
    int M, G, N, K;
    bool x_swizzled;  // x_scale: F8_128x4, of rows m G + g
    bool w_swizzled;  // w_scale: F8_128x4, else [G N, K / 32]
};

// Returns a cudaError_t.
int run(const Args& args, bool dependent, void* stream);

}  // namespace moet::mxfp8_gemv
