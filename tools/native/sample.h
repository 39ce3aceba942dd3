#pragma once

#include <cstdint>

// Sum of n bytes.
std::int64_t sum_plain(const std::uint8_t* bytes, std::int64_t n);
std::int64_t sum_wide(const std::uint8_t* bytes, std::int64_t n);

// What instruction sets the linked copy of an inline function has: each source compiles one, with its own flags.
[[gnu::noipa]] inline bool shared_is_wide() {
#ifdef __AVX2__
  return true;
#else
  return false;
#endif
}

// Makes avx2.cpp compile a copy.
bool shared_is_wide_in_avx2();
