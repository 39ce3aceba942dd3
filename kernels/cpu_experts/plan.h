// What an engine knows of the job that it computes.
#pragma once

#include "kernels/cpu_experts/engine.h"

namespace moet::cpu {

// Outputs that are computed at a time.
constexpr int kRows = 32;

// An expert of the job, and its tokens; `first` is its first row among the results.
struct Engine::Expert {
  const std::uint8_t* record;
  std::int32_t index, tokens, first;
  std::int32_t token[kMaxTokens];
  Activations x;
};

// Threads of one NUMA node and the rows that are theirs, in either phase: w1 with w3, then w2.
struct Engine::Domain {
  alignas(64) std::atomic<std::int32_t> taken[2];
  alignas(64) std::int32_t begin[2], end[2];
};

struct Engine::Unit {
  int phase, expert, row;
};

// Something else to be done by all threads.
struct Engine::Task : Job {
  void (*task)(void*, int);
  void* context;
};

}  // namespace moet::cpu
