// CRC-64/NVME by carry-less multiplication, and by tables eight bytes at a time.

#include "serving/experts/storage/crc64.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moet::crc64 {
namespace {

// Bit i stands for x^(63 - i): the polynomial 0xAD93D23594C93659 turned around.
constexpr std::uint64_t kPolynomial = 0x9A6C9329AC4BC9B5;

constexpr std::uint64_t times_x(std::uint64_t value) { return (value >> 1) ^ ((value & 1) ? kPolynomial : 0); }

// x^n modulo the polynomial.
constexpr std::uint64_t power(unsigned n) {
  std::uint64_t value = std::uint64_t{1} << 63;
  for (unsigned i = 0; i < n; ++i) value = times_x(value);
  return value;
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  for (int bit = 63; bit >= 0; --bit, a = times_x(a))
    if ((b >> bit) & 1) sum ^= a;
  return sum;
}

using Tables = std::array<std::array<std::uint64_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::uint64_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    tables[0][byte] = value;
  }
  for (unsigned k = 1; k < 8; ++k)
    for (unsigned byte = 0; byte < 256; ++byte) {
      const std::uint64_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 255];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint64_t go_on(std::uint64_t state, const unsigned char *data, std::size_t size) {
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    word ^= state;
    state = 0;
    for (unsigned k = 0; k < 8; ++k) state ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; size != 0; ++data, --size) state = (state >> 8) ^ kTables[0][(state ^ *data) & 255];
  return state;
}

#if defined(__x86_64__)

constexpr unsigned kLanes = 8;
constexpr std::size_t kStep = 16 * kLanes;

// What moves a 128-bit remainder on by `bits`: a carry-less product of turned-around values has one x too many.
#define MOET_FOLD_BY(bits) \
  _mm_set_epi64x(static_cast<long long>(power((bits)-1)), static_cast<long long>(power((bits) + 63)))

__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i value, __m128i by, __m128i next) {
  const __m128i early = _mm_clmulepi64_si128(value, by, 0x00);
  const __m128i late = _mm_clmulepi64_si128(value, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(early, late), next);
}

__attribute__((target("pclmul,sse4.1"))) std::uint64_t by_multiplication(std::uint64_t state, const unsigned char *data,
                                                                         std::size_t size) {
  static const __m128i far = MOET_FOLD_BY(8 * kStep);
  static const __m128i near = MOET_FOLD_BY(128);
  __m128i lanes[kLanes];
  const auto load = [&](unsigned lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(data) + lane); };
  for (unsigned lane = 0; lane < kLanes; ++lane) lanes[lane] = load(lane);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, static_cast<long long>(state)));
  for (data += kStep, size -= kStep; size >= kStep; data += kStep, size -= kStep)
    for (unsigned lane = 0; lane < kLanes; ++lane) lanes[lane] = fold(lanes[lane], far, load(lane));
  __m128i sum = lanes[0];
  for (unsigned lane = 1; lane < kLanes; ++lane) sum = fold(sum, near, lanes[lane]);
  unsigned char rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i *>(rest), sum);
  return go_on(go_on(0, rest, sizeof rest), data, size);
}

bool multiplies() {
  static const bool found = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return found;
}

#endif

}  // namespace

std::uint64_t by_tables(const void *data, std::size_t size) {
  return ~go_on(~std::uint64_t{0}, static_cast<const unsigned char *>(data), size);
}

std::uint64_t checksum(const void *data, std::size_t size) {
#if defined(__x86_64__)
  if (size >= kStep && multiplies())
    return ~by_multiplication(~std::uint64_t{0}, static_cast<const unsigned char *>(data), size);
#endif
  return by_tables(data, size);
}

std::uint64_t joined(std::uint64_t first, std::uint64_t second, std::uint64_t size) {
  std::uint64_t shift = std::uint64_t{1} << 63;
  std::uint64_t square = power(8);
  for (; size != 0; size >>= 1, square = product(square, square))
    if (size & 1) shift = product(shift, square);
  return product(first, shift) ^ second;
}

const char *path() {
#if defined(__x86_64__)
  if (multiplies()) return "pclmulqdq";
#endif
  return "tables";
}

}  // namespace moet::crc64
