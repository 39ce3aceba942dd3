// What op.cpp calls of op.cu.
#pragma once
#include <cstdint>

namespace moet::p2p_allreduce {

constexpr int kLeastRanks = 2, kMostRanks = 8;
constexpr int kUnitBytes = 16;          // what a thread loads and stores at once
constexpr int kMostBytes = 512 * 1024;  // of one tensor
constexpr int kMostLLBytes = 128 * 1024;  // of one tensor by the low-latency protocol

enum class Type : int { kBfloat16, kHalf, kFloat };

struct Args {
    const void* x;
    void* out;                    // may be x
    uint64_t* status;             // on the host, mapped: 0, or the failure (workspace.cuh)
    void* workspaces[kMostRanks]; // of every rank, as this process maps them
    uint64_t deadline_ns;         // how long a block waits for its peers
    int rank, world;
    int units;          // of x
    int units_a_block;  // filled in by run()
};

// Bytes of a rank's workspace.
int64_t workspace_bytes(int world);

// out = the sum of x over the ranks, by the low-latency protocol or the simple one. Returns a cudaError_t.
int run(Args args, Type type, bool ll, bool dependent, void* stream);

}  // namespace moet::p2p_allreduce
