// out = x summed over the ranks, which push into each other's workspaces over peer memory. README.md has why it is right.
//
// A block takes a part of x, and a thread 16 bytes of that. The block stores its part into the workspace of every peer,
// waits until the peers' parts are in its own, and adds them up in order of rank: so every rank has the same bits. Rounds
// are counted in device memory, so a replayed graph goes on where the last launch stopped. How a rank knows that a peer's
// part is there is the protocol's affair: simple.cuh, ll.cuh.
#include <cuda_runtime.h>

#include <array>

#include "kernels/common/launch.cuh"
#include "kernels/common/launch_fact.h"
#include "kernels/p2p_allreduce/ll.cuh"
#include "kernels/p2p_allreduce/simple.cuh"

namespace moet::p2p_allreduce {

using Kernel = void (*)(Args);
constexpr std::array<Kernel, 3> kSimple = {allreduce_simple<0>, allreduce_simple<1>, allreduce_simple<2>};
constexpr std::array<Kernel, 3> kLL = {allreduce_ll<0>, allreduce_ll<1>, allreduce_ll<2>};

MOET_LAUNCH_FACTS extern constexpr auto kFacts = std::array{
    launch_fact("allreduce_simple", 0, kSimpleUnitsABlock, 0, 0),
    launch_fact("allreduce_simple", 1, kSimpleUnitsABlock, 0, 0),
    launch_fact("allreduce_simple", 2, kSimpleUnitsABlock, 0, 0),
    launch_fact("allreduce_ll", 0, kLLThreads, 0, 0),
    launch_fact("allreduce_ll", 1, kLLThreads, 0, 0),
    launch_fact("allreduce_ll", 2, kLLThreads, 0, 0),
};

int64_t workspace_bytes(int world) { return kData + 2 * (int64_t)world * (kMostBytes + 2 * kMostLLBytes); }

int run(Args args, Type type, bool ll, bool dependent, void* stream) {
    const auto form = static_cast<int>(type);
    const auto s = static_cast<cudaStream_t>(stream);
    const int most = ll ? kLLUnitsABlock : kSimpleUnitsABlock;
    const int blocks = (args.units + most - 1) / most;
    args.units_a_block = ((args.units + blocks - 1) / blocks + 31) / 32 * 32;
    if (!ll) return launch(kSimple[form], args, {dim3(blocks), dim3(args.units_a_block), 0, dependent, s});
    return launch(kLL[form], args, {dim3(blocks), dim3(args.units_a_block + 32), 0, dependent, s});
}

}  // namespace moet::p2p_allreduce
