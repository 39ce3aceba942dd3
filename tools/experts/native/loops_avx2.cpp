// Compiled with -mavx2 -mpopcnt.
#define MOET_LOOPS avx2
#include "tools/experts/native/loops.inl"

namespace moet::experts {

const Loops* avx2_loops() {
#ifdef __AVX2__
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") ? &avx2::kLoops : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace moet::experts
