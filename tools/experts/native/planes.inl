// Nibbles to planes. Part of loops.inl.

namespace moet::experts::MOET_LOOPS {

// What a byte of two nibbles becomes: two codes in four bits; d0 + 5 d1 of the quintal delta.
static constexpr auto kTwoCodes = [] {
  std::array<uint8_t, 256> table{};
  constexpr uint8_t code[16] = {2, 2, 2, 2, 2, 3, 3, 3, 1, 1, 1, 1, 1, 0, 0, 0};
  for (int both = 0; both < 256; ++both) table[both] = static_cast<uint8_t>(code[both & 15] | code[both >> 4] << 2);
  return table;
}();
static constexpr auto kTwoDigits = [] {
  std::array<uint8_t, 256> table{};
  constexpr uint8_t digit[8] = {0, 1, 2, 3, 4, 0, 1, 2};
  for (int both = 0; both < 256; ++both) table[both] = static_cast<uint8_t>(digit[both & 7] + 5 * digit[both >> 4 & 7]);
  return table;
}();

#ifdef __AVX2__

// Both nibbles of each byte through two tables, added.
static inline __m256i looked_up(__m256i both, __m256i of_low, __m256i of_high) {
  const __m256i mask = _mm256_set1_epi8(15);
  const __m256i low = _mm256_shuffle_epi8(of_low, _mm256_and_si256(both, mask));
  return _mm256_add_epi8(low, _mm256_shuffle_epi8(of_high, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask)));
}

static inline __m256i twice(__m128i half) { return _mm256_broadcastsi128_si256(half); }

// 16 words [k32, half, t] of rows g and g + 8 to [t, tile, k32, half], 64 bytes.
static inline void words(__m256i first, __m256i second, __m256i out[2]) {
  const __m256i by_t = twice(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  const __m256i join = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  first = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(first, by_t), join);
  second = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(second, by_t), join);
  const __m256i even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
  out[0] = _mm256_permute2x128_si256(even, odd, 0x20);
  out[1] = _mm256_permute2x128_si256(even, odd, 0x31);
}

static void codes(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane) {
  const __m256i low = twice(_mm_setr_epi8(2, 2, 2, 2, 2, 3, 3, 3, 1, 1, 1, 1, 1, 0, 0, 0));
  const __m256i high = _mm256_slli_epi16(low, 2), pair = _mm256_set1_epi16(0x1001);
  // Of [tile, half, t] in a half register: [t, tile, half].
  const __m256i by_t = twice(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  for (int64_t block = 0; block < blocks; ++block) {
    for (int g = 0; g < 8; ++g) {
      const uint8_t* row = rows + g * stride + block * 32;
      const __m256i first = _mm256_maddubs_epi16(looked_up(row_at(row), low, high), pair);
      const __m256i second = _mm256_maddubs_epi16(looked_up(row_at(row + 8 * stride), low, high), pair);
      const __m256i both = _mm256_shuffle_epi8(_mm256_packus_epi16(first, second), by_t);
      const __m128i a = _mm256_castsi256_si128(both), b = _mm256_extracti128_si256(both, 1);
      __m128i* out = reinterpret_cast<__m128i*>(plane + block * 256 + g * 32);
      _mm_storeu_si128(out, _mm_unpacklo_epi16(a, b));
      _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(a, b));
    }
  }
}

static void nibbles(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane) {
  for (int64_t block = 0; block < blocks; ++block) {
    for (int g = 0; g < 8; ++g) {
      const uint8_t* row = rows + g * stride + block * 32;
      __m256i lanes[2];
      words(row_at(row), row_at(row + 8 * stride), lanes);
      __m256i* out = reinterpret_cast<__m256i*>(plane + block * 512 + g * 64);
      _mm256_storeu_si256(out, lanes[0]);
      _mm256_storeu_si256(out + 1, lanes[1]);
    }
  }
}

static void quintal(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane) {
  const __m256i low = twice(_mm_setr_epi8(0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2));
  const __m256i high = _mm256_add_epi8(low, _mm256_slli_epi16(low, 2));
  const __m256i pair = _mm256_set1_epi16(0x1901), join = _mm256_set1_epi32(0x04000001);
  const __m256i least = _mm256_set1_epi64x(0xFFFFF), next = _mm256_set1_epi64x(0xFFFFF00000);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int g = 0; g < 8; ++g) {
      const uint8_t* row = rows + g * stride + block * 32;
      const __m256i first = _mm256_maddubs_epi16(looked_up(row_at(row), low, high), pair);
      const __m256i second = _mm256_maddubs_epi16(looked_up(row_at(row + 8 * stride), low, high), pair);
      __m256i lanes[2];
      words(first, second, lanes);
      for (int two = 0; two < 2; ++two) {
        // Words of 10 bits to 20, to 40.
        const __m256i twenty = _mm256_madd_epi16(lanes[two], join);
        const __m256i above = _mm256_and_si256(_mm256_srli_epi64(twenty, 12), next);
        const __m256i forty = _mm256_or_si256(_mm256_and_si256(twenty, least), above);
        alignas(32) uint64_t parts[4];
        _mm256_store_si256(reinterpret_cast<__m256i*>(parts), forty);
        for (int one = 0; one < 2; ++one) {
          const int lane = g * 4 + two * 2 + one;
          const uint64_t eight = parts[one * 2] | parts[one * 2 + 1] << 40;
          const uint16_t rest = static_cast<uint16_t>(parts[one * 2 + 1] >> 24);
          std::memcpy(plane + block * 320 + lane * 8, &eight, 8);
          std::memcpy(plane + block * 320 + 256 + lane * 2, &rest, 2);
        }
      }
    }
  }
}

#else

// Calls `one(lane, place in the lane, bytes of four weights)` for all of a block.
template <typename One>
static inline __attribute__((always_inline)) void fragments(const uint8_t* rows, int64_t stride, int64_t block,
                                                            One one) {
  for (int g = 0; g < 8; ++g)
    for (int tile = 0; tile < 2; ++tile)
      for (int chunk = 0; chunk < 16; ++chunk) {
        const int part = chunk / 4, t = chunk % 4;
        one(g * 4 + t, tile * 4 + part, rows + (g + 8 * tile) * stride + block * 32 + chunk * 2);
      }
}

static void codes(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane) {
  for (int64_t block = 0; block < blocks; ++block)
    fragments(rows, stride, block, [&](int lane, int at, const uint8_t* four) {
      plane[block * 256 + lane * 8 + at] = static_cast<uint8_t>(kTwoCodes[four[0]] | kTwoCodes[four[1]] << 4);
    });
}

static void nibbles(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane) {
  for (int64_t block = 0; block < blocks; ++block)
    fragments(rows, stride, block, [&](int lane, int at, const uint8_t* four) {
      std::memcpy(plane + block * 512 + lane * 16 + at * 2, four, 2);
    });
}

static void quintal(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane) {
  for (int64_t block = 0; block < blocks; ++block) {
    uint64_t words[32][8];
    fragments(rows, stride, block, [&](int lane, int at, const uint8_t* four) {
      words[lane][at] = kTwoDigits[four[0]] + 25u * kTwoDigits[four[1]];
    });
    for (int lane = 0; lane < 32; ++lane) {
      uint64_t eight = 0;
      for (int at = 0; at < 7; ++at) eight |= words[lane][at] << (10 * at);
      const uint16_t rest = static_cast<uint16_t>(words[lane][6] >> 4 | words[lane][7] << 6);
      std::memcpy(plane + block * 320 + lane * 8, &eight, 8);
      std::memcpy(plane + block * 320 + 256 + lane * 2, &rest, 2);
    }
  }
}

#endif

}  // namespace moet::experts::MOET_LOOPS
