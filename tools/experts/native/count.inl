// What is counted, and the zero mode. Part of loops.inl.

namespace moet::experts::MOET_LOOPS {

// Counts in bytes, which hold 255 at most; `most` is what one vector adds.
template <typename Count, typename Rest>
static inline __attribute__((always_inline)) void counted(int64_t bytes, int most, Count count, Rest rest) {
  const int64_t wide = bytes / kWide, run = 255 / most;
  for (int64_t at = 0; at < wide; at += run) {
    V positive{}, negative{};
    for (int64_t one = at; one < std::min(at + run, wide); ++one) count(one * kWide, positive, negative);
    rest(positive, negative);
  }
}

static void zero_nibbles(const uint8_t* packed, int64_t bytes, int64_t& positive, int64_t& negative) {
  counted(
      bytes, 2,
      [&](int64_t at, V& up, V& down) {
        const V both = load<V>(packed + at), low = both & 15, high = both & 0xF0;
        up -= (V)(low == 0) + (V)(high == 0);
        down -= (V)(low == 8) + (V)(high == 0x80);
      },
      [&](const V& up, const V& down) { positive += sum(up), negative += sum(down); });
  for (int64_t at = bytes / kWide * kWide; at < bytes; ++at) {
    for (const int nibble : {packed[at] & 15, packed[at] >> 4}) positive += nibble == 0, negative += nibble == 8;
  }
}

static void zero_bytes(const uint8_t* codes, int64_t bytes, int64_t& positive, int64_t& negative) {
  counted(
      bytes, 1,
      [&](int64_t at, V& up, V& down) {
        const V both = load<V>(codes + at);
        up -= (V)(both == 0);
        down -= (V)(both == 0x80);
      },
      [&](const V& up, const V& down) { positive += sum(up), negative += sum(down); });
  for (int64_t at = bytes / kWide * kWide; at < bytes; ++at) positive += codes[at] == 0, negative += codes[at] == 0x80;
}

static int64_t zero_blocks(const uint8_t* packed, int64_t blocks) {
  int64_t count = 0;
  for (int64_t at = 0; at < blocks; ++at) {
    const auto pair = load<std::array<uint64_t, 2>>(packed + at * 16);
    count += ((pair[0] | pair[1]) & 0x7777777777777777) == 0;
  }
  return count;
}

static void alternate(const uint8_t* packed, int64_t bytes, uint8_t* out) {
  int64_t at = 0;
  for (; at + kWide <= bytes; at += kWide) {
    const V both = load<V>(packed + at);
    const V low = (both & 7) == 0, high = (both & 0x70) == 0;
    // Where a nibble is zero, its place is cleared, and in odd columns the sign set.
    store<V>(out + at, (both & ~((low & 0x0F) | (high & 0xF0))) | (high & 0x80));
  }
  for (; at < bytes; ++at) {
    int both = packed[at];
    if ((both & 7) == 0) both &= 0xF0;
    if ((both & 0x70) == 0) both = (both & 15) | 0x80;
    out[at] = static_cast<uint8_t>(both);
  }
}

#ifdef __AVX2__

// Eight vectors of bytes with two counters of four bits each; a counter is of one nibble.
static void histogram(const uint8_t* packed, int64_t bytes, int64_t counts[16]) {
  // A vector adds two at most to a counter.
  constexpr int kVectors = 7, kRuns = 8;
  const __m256i mask = _mm256_set1_epi8(15);
  int64_t at = 0;
  while (at + kWide <= bytes) {
    V wide[16] = {};
    for (int run = 0; run < kRuns && at + kWide <= bytes; ++run) {
      __m256i small[8] = {};
      for (int one = 0; one < kVectors && at + kWide <= bytes; ++one, at += kWide) {
        const __m256i both = row_at(packed + at), low = _mm256_and_si256(both, mask);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
        for (int pair = 0; pair < 8; ++pair) {
          const uint64_t half = pair < 4 ? 0x1001ull << pair * 16 : 0, rest = pair < 4 ? 0 : 0x1001ull << (pair - 4) * 16;
          const __m256i table = _mm256_setr_epi64x(half, rest, half, rest);
          small[pair] = _mm256_add_epi8(
              small[pair], _mm256_add_epi8(_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high)));
        }
      }
      for (int pair = 0; pair < 8; ++pair) {
        wide[2 * pair] += (V)_mm256_and_si256(small[pair], mask);
        wide[2 * pair + 1] += (V)_mm256_and_si256(_mm256_srli_epi16(small[pair], 4), mask);
      }
    }
    for (int nibble = 0; nibble < 16; ++nibble) {
      const V64 sums = (V64)_mm256_sad_epu8((__m256i)wide[nibble], _mm256_setzero_si256());
      counts[nibble] += static_cast<int64_t>(sums[0] + sums[1] + sums[2] + sums[3]);
    }
  }
  for (; at < bytes; ++at) ++counts[packed[at] & 15], ++counts[packed[at] >> 4];
}

#else

// For each byte of two nibbles, 1 or 2 at the places of its nibbles.
static constexpr auto kOneHot = [] {
  std::array<std::array<uint8_t, 16>, 256> table{};
  for (int both = 0; both < 256; ++both) ++table[both][both & 15], ++table[both][both >> 4];
  return table;
}();

static void histogram(const uint8_t* packed, int64_t bytes, int64_t counts[16]) {
  constexpr int kStreams = 4, kRun = 127 * kStreams;
  for (int64_t at = 0; at < bytes; at += kRun) {
    H sums[kStreams] = {};
    const int64_t end = std::min(at + kRun, bytes);
    int64_t one = at;
    for (; one + kStreams <= end; one += kStreams)
      for (int stream = 0; stream < kStreams; ++stream)
        sums[stream] += load<H>(kOneHot[packed[one + stream]].data());
    for (; one < end; ++one) sums[0] += load<H>(kOneHot[packed[one]].data());
    for (int nibble = 0; nibble < 16; ++nibble)
      for (const H& part : sums) counts[nibble] += part[nibble];
  }
}

#endif

}  // namespace moet::experts::MOET_LOOPS
