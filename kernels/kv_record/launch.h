// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::kv_record {

constexpr int kRopeDims = 64, kQueryDims = 512;
constexpr int kPageSizes[] = {32, 64, 128};
constexpr int kMostRatio = 2;
constexpr int64_t kMostRows = 1 << 28;
constexpr int64_t kMostQueries = 1 << 27;  // heads of all tokens

// A row of `dims` numbers in the cache: `data` bytes of codes, and in the page's footer `scales` bytes.
struct Record {
    int dims, data, scales, width;
};
constexpr Record kMxfp8{512, 512, 16, 528}, kFp4{512, 256, 32, 288}, kKey{128, 64, 4, 68};

struct Cache {
    uint8_t* pages;
    int64_t stride, places;  // bytes from a page to the next; rows of all pages
    int shift;               // log2 of rows a page
};

// See op.py.
struct WriteArgs {
    const void* rows;  // bf16, `row_stride` numbers apart
    const int64_t* positions;
    const int64_t* slots;
    const float* cos_sin;  // [known, kRopeDims]
    const void* weight;    // bf16 [kKey.dims], of keys alone
    void* queries;         // bf16 [tokens, heads, kQueryDims], or null; not with keys
    Cache cache;
    int64_t row_stride, known;
    int64_t token_stride, head_stride;  // of queries, in numbers
    int count, ratio, tokens, heads;
    int blocks;  // set by run(): those that have rows; the others have queries
    float eps;
};

struct GatherArgs {
    Cache cache;
    const int64_t* slots;
    void* out;  // bf16 [count, dims]
    int count;
};

// `width`: of one of the records. Both return a cudaError_t. There is a row or a query.
int run(const WriteArgs& args, int width, bool dependent, void* stream);
int run_gather(const GatherArgs& args, int width, void* stream);

}  // namespace moet::kv_record
