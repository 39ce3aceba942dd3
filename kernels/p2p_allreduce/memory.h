// Memory that other processes map: a workspace, its handle, and what a peer makes of the handle.
#pragma once
#include <cuda_runtime.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/extension/arguments.h"
#include "kernels/p2p_allreduce/launch.h"

namespace moet::p2p_allreduce {

// A handle as torch can pass it: its 64 bytes as eight integers.
constexpr size_t kHandleWords = sizeof(cudaIpcMemHandle_t) / sizeof(int64_t);

inline void check(const char* op, const char* what, cudaError_t error) {
    if (error == cudaSuccess) return;
    cudaGetLastError();
    refuse(op, what, ": ", cudaGetErrorString(error));
}

inline void check_world(const char* op, const char* name, int64_t world) {
    if (world < kLeastRanks || world > kMostRanks)
        refuse(op, name, ": is ", world, "; expected ", kLeastRanks, " to ", kMostRanks, " ranks");
}

// A workspace, zeroed; of cudaMalloc itself, since what torch's allocator has may not be exported.
inline int64_t allocate(int64_t device, int64_t world) {
    check_world("p2p_allocate", "world", world);
    const torch::stable::accelerator::DeviceGuard guard(static_cast<int32_t>(device));
    const int64_t bytes = workspace_bytes(static_cast<int>(world));
    void* address = nullptr;
    check("p2p_allocate", "no memory", cudaMalloc(&address, bytes));
    cudaError_t zeroed = cudaMemset(address, 0, bytes);
    if (zeroed == cudaSuccess) zeroed = cudaDeviceSynchronize();
    if (zeroed != cudaSuccess) cudaFree(address);
    check("p2p_allocate", "memory cannot be zeroed", zeroed);
    return reinterpret_cast<int64_t>(address);
}

inline void release(int64_t device, int64_t address) {
    const torch::stable::accelerator::DeviceGuard guard(static_cast<int32_t>(device));
    check("p2p_release", "memory cannot be freed", cudaFree(reinterpret_cast<void*>(address)));
}

inline std::vector<int64_t> export_handle(int64_t device, int64_t address) {
    const torch::stable::accelerator::DeviceGuard guard(static_cast<int32_t>(device));
    cudaIpcMemHandle_t handle;
    check("p2p_export", "memory cannot be shared", cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(address)));
    std::vector<int64_t> words(kHandleWords);
    std::memcpy(words.data(), &handle, sizeof(handle));
    return words;
}

inline int64_t open_handle(int64_t device, std::vector<int64_t> words) {
    if (words.size() != kHandleWords) refuse("p2p_open", "handle: has ", words.size(), " words; expected ", kHandleWords);
    const torch::stable::accelerator::DeviceGuard guard(static_cast<int32_t>(device));
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, words.data(), sizeof(handle));
    void* address = nullptr;
    check("p2p_open", "a peer's memory cannot be mapped",
          cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess));
    return reinterpret_cast<int64_t>(address);
}

inline void close_handle(int64_t device, int64_t address) {
    const torch::stable::accelerator::DeviceGuard guard(static_cast<int32_t>(device));
    check("p2p_close", "a peer's memory cannot be unmapped", cudaIpcCloseMemHandle(reinterpret_cast<void*>(address)));
}

}  // namespace moet::p2p_allreduce
