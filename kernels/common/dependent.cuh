// Programmatic dependent launch, on the device. Both are free where the launch did not ask for it.
#pragma once

namespace moet {

// The kernel behind this one in the stream may begin, as far as it goes without what this one writes.
__device__ __forceinline__ void let_dependents_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Until here: nothing that the kernel ahead may write, read or overwrite. Afterwards it has ended, and its writes are seen.
__device__ __forceinline__ void wait_for_prior() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace moet
