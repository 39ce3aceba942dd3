// CRC-64/NVME: polynomial 0xAD93D23594C93659 reflected, initial value and final exclusive-or all ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moet::crc64 {

// The checksum of `size` bytes, through carry-less multiplication where the CPU has it.
std::uint64_t checksum(const void *data, std::size_t size);

// The same through tables alone, as on a CPU without it.
std::uint64_t by_tables(const void *data, std::size_t size);

// The checksum of two stretches of bytes behind each other, from that of each; `size` is the second's.
std::uint64_t joined(std::uint64_t first, std::uint64_t second, std::uint64_t size);

// "pclmulqdq" or "tables": what checksum() uses here.
const char *path();

}  // namespace moet::crc64
