// What the kernels' speed is held against: reading memory, and instructions on registers alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moet::cpu {

// Reads thread's share, in pieces that are dealt to the threads in turn; `ahead` bytes are fetched ahead, or none.
std::uint64_t read_share(const std::uint8_t* memory, std::size_t bytes, int thread, int threads, int ahead);

// The instruction that sums products, in independent chains: as often as is returned.
std::int64_t dot_products(int isa, int rows, std::int64_t rounds);

}  // namespace moet::cpu
