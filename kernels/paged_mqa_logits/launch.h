// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::paged_mqa_logits {

constexpr int kHeads = 32, kHeadDim = 128;
constexpr int kMostNextN = 8;  // rows of q a request
constexpr int kPageSizes[] = {32, 64, 128};
constexpr int kMostSlots = 65535;

// out[b next_n + j, i] = scale(key i of b) sum over heads of weights max(q[b, j, head] . key i of b, 0), for i below the
// context of row j of b. Other columns are not written.
struct Args {
    const void* q;         // E4M3 [requests, next_n, 32, 128], or E2M1 of half as many bytes
    const void* q_scale;   // UE8M0, one word a head; of E2M1 only
    const void* cache;     // pages: values of every key, then 4 bytes a key: fp32, or UE8M0 a quarter of it
    const void* weights;   // fp32 [requests * next_n, 32]
    const void* contexts;  // int32, one a request or one a row
    const void* tables;    // int32: a request's pages in their order
    const void* schedule;  // int32 [slots + 1, 2]
    void* out;             // fp32
    int64_t page_stride, table_stride, out_stride;  // bytes, entries, columns
    int requests, next_n, pages, page_shift, table_width, columns, slots;  // page_shift: log2 of keys a page
    bool context_a_row, mxfp4;
};

// Where slot s begins in the work of all requests: (request, unit of 32 keys), s = 0 .. slots; see README.md.
struct ScheduleArgs {
    const void* contexts;
    void* schedule;
    int requests, rows, slots;  // rows: contexts a request
};

// Both return a cudaError_t.
int run(const Args& args, bool dependent, void* stream);
int run_schedule(const ScheduleArgs& args, bool dependent, void* stream);

}  // namespace moet::paged_mqa_logits
