// Which instruction sets this CPU has, and the system lets a process use.
#pragma once

#include "kernels/cpu_experts/kernel.h"

namespace moet::cpu {

const char* isa_name(Isa isa);
// AMX is asked of the system at the first call: before the threads begin that will use it.
bool isa_usable(Isa isa);
// Raises std::invalid_argument when it is not usable.
const Table& isa_table(Isa isa);

}  // namespace moet::cpu
