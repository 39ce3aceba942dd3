// What a launch takes, written into the library for the gate: a cubin does not know the shared memory of its launches.
#pragma once
#include <cstddef>
#include <cstdint>

namespace moet {

struct LaunchFact {
    char kernel[48];         // name of the kernel's template
    int32_t form;            // its first template argument
    int32_t threads;         // a block
    int32_t dynamic_shared;  // bytes a block
    int32_t mma;             // matrix instructions that its code should have
};
static_assert(sizeof(LaunchFact) == 64);

constexpr LaunchFact launch_fact(const char* kernel, int form, int threads, int dynamic_shared, int mma) {
    LaunchFact fact{{}, form, threads, dynamic_shared, mma};
    for (size_t i = 0; kernel[i] && i + 1 < sizeof(fact.kernel); i++) fact.kernel[i] = kernel[i];
    return fact;
}

}  // namespace moet

// Goes before a constant array of LaunchFact: the section that kernels/gate/facts.py reads.
#define MOET_LAUNCH_FACTS __attribute__((used, section(".moet.launch")))
