// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::moe_w2 {

constexpr int kMostRows = 16;  // of x
constexpr int kMostTop = 8;    // experts a row
constexpr int kMostPairs = kMostRows * kMostTop;
constexpr int kUnitN = 16, kUnitK = 64;  // of the planes
constexpr int kMostK = 7168;
constexpr int kMostParts = 2;

// One form of the weights: slots of one or two matrices [N, K], planes and scales as kernels/common/planes.py has them.
struct Weights {
    const void* planes;
    const void* scales;
    const int32_t* table;  // [E]: the slot of an expert; none where it is less than 0 or no slot
    int64_t plane_slot, plane_part, scale_slot, scale_part;  // bytes from a slot, and from a part of it, to the next
    int slots;
};

// out[m, j, :] = x[m, j, :] w[ids[m, j]]^T; x in E4M3 with one UE8M0 scale a row and 32 columns.
struct Args {
    const void* x;
    const void* x_scale;
    int64_t x_row, x_pair, x_scale_row, x_scale_pair;  // bytes; from a pair to the next 0 where a row has but one x
    const int32_t* ids;                                // [M, top]
    Weights base;   // 2-bit codes
    Weights delta;  // FP4; instead of the base where an expert has a slot; table absent: none has
    void* out;         // [M, top, parts N], contiguous
    int32_t* missing;  // is increased by the pairs whose expert has no weights
    int M, top, E, N, K, parts;
    bool out_is_float;       // else bf16
    bool delta_has_scales;   // else those of the base's slot
    bool routed;             // ids and tables were complete before the kernel ahead began
};

// Returns a cudaError_t.
int run(const Args& args, bool dependent, void* stream);

}  // namespace moet::moe_w2
