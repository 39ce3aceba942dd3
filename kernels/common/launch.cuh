// Launches with programmatic dependent launch, on the host.
#pragma once
#include <cuda_runtime.h>

namespace moet {

struct Launch {
    dim3 grid;
    dim3 block;
    int dynamic_shared;  // bytes a block
    bool dependent;      // may begin before the kernel ahead of it in the stream has ended; see dependent.cuh
    cudaStream_t stream;
};

template <typename Args>
cudaError_t launch(void (*kernel)(Args), const Args& args, const Launch& how) {
    cudaLaunchConfig_t config = {};
    config.gridDim = how.grid;
    config.blockDim = how.block;
    config.dynamicSmemBytes = how.dynamic_shared;
    config.stream = how.stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = how.dependent ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace moet
