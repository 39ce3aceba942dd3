#pragma once

#include <cstdint>

// Sum of n bytes.
std::int64_t sum_plain(const std::uint8_t* bytes, std::int64_t n);
std::int64_t sum_wide(const std::uint8_t* bytes, std::int64_t n);
