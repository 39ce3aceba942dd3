// Shared memory by 32-bit address: asynchronous copies into it, and matrices out of it.
#pragma once
#include <cstdint>

namespace moet {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Copies 16 bytes, or writes 16 zeros; `from` must be a valid address in either case.
__device__ __forceinline__ void copy16(uint32_t to, const void* from, bool copy = true) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copy ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy4(uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the latest COUNT groups of this thread's copies have arrived.
template <int COUNT>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ uint32_t load_shared(uint32_t from) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ float4 load_shared_floats(uint32_t from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ void store_shared(uint32_t to, uint32_t v) {
    asm volatile("st.shared.u32 [%0],%1;" ::"r"(to), "r"(v) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t to, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Byte offset of 16-byte column c in row r of a tile of 128-byte rows; the xor keeps copies and ldmatrix off one bank.
__device__ __forceinline__ uint32_t in_tile(int r, int c) { return r * 128 + ((c ^ (r & 7)) << 4); }

}  // namespace moet
