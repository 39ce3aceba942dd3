#include "kernels/cpu_experts/cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace moet::cpu {
namespace {

// arch_prctl(2): tile data are state that a process must ask for.
constexpr int kRequestPermission = 0x1023, kTileData = 18;

bool amx_usable() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  const bool tile = edx >> 24 & 1, int8 = edx >> 25 & 1;
  return tile && int8 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const char* isa_name(Isa isa) {
  constexpr const char* names[] = {"scalar", "avx2", "avx512", "amx"};
  return names[isa];
}

bool isa_usable(Isa isa) {
  // These look at what the system saves, too.
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                             __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
  static const bool amx = avx512 && amx_usable();
  switch (isa) {
    case kScalar:
      return true;
    case kAvx2:
      return avx2;
    case kAvx512:
      return avx512;
    default:
      return amx;
  }
}

const Table& isa_table(Isa isa) {
  if (!isa_usable(isa))
    throw std::invalid_argument(std::string("isa is ") + isa_name(isa) + ", which this CPU or system does not have");
  switch (isa) {
    case kScalar:
      return scalar_table();
    case kAvx2:
      return avx2_table();
    case kAvx512:
      return avx512_table();
    default:
      return amx_table();
  }
}

}  // namespace moet::cpu
