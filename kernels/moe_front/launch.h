// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::moe_front {

constexpr int kTop = 6;            // experts a token
constexpr int kMostTokens = 64;    // so that an expert's rows fit in one tile, whose least is 64
constexpr int kMostExperts = 384;
constexpr int kUnitExperts = 32;   // the number of experts is a multiple of it
constexpr int kUnitK = 512;        // K is a multiple of it: 4 scales of 128 columns are a word
constexpr int kMostK = 8192;
constexpr int kImageTokens = 5;    // ids, from image_first on, that stand for parts of an image

// See op.py. M tokens, E experts, K columns, R rows; null where a tensor is absent.
struct Args {
    const float* logits;         // [M, E]
    const float* bias;           // [E]
    const void* x;               // bf16 [M, K]
    const bool* is_padding;      // [M], or null
    const void* token_ids;       // [M], int64 or int32, or null
    const float* image_bias;     // [E], or null
    void* a;                     // e4m3 [R, K]
    uint32_t* a_scale;           // [K / (4 group)] columns of R words
    int32_t* m_indices;          // [R]
    int32_t* inv_perm;           // [M, kTop]
    float* topk_weights;         // [M, kTop]
    int32_t* topk_ids;           // [M, kTop]
    int64_t image_first;         // 0: no image tokens
    float scaling_factor;
    int M, E, K, R, alignment;
    int pieces, tiles;           // set by run(): of K, and of R
    bool ids_are_long;
};

// `group`: columns a scale, 128 or 32. Returns a cudaError_t.
int run(const Args& args, int group, bool dependent, void* stream);

}  // namespace moet::moe_front
