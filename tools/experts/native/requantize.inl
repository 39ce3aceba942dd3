// NVFP4 and FP8 to nibbles. Part of loops.inl.

namespace moet::experts::MOET_LOOPS {

template <typename T>
static inline __attribute__((always_inline)) T larger(const T& a, const T& b) {
  return a > b ? a : b;
}

// The largest byte of each eight, in the lowest.
static inline __attribute__((always_inline)) V largest_of_eight(V values) {
  values = larger<V>(values, (V)((V64)values >> 32));
  values = larger<V>(values, (V)((V64)values >> 16));
  return larger<V>(values, (V)((V64)values >> 8));
}

static void largest_bytes(const uint8_t* codes, int64_t groups, uint8_t* out) {
  for (int64_t at = 0; at < groups; ++at) {
    V all{};
    for (int part = 0; part < 32; part += kWide) all = larger<V>(all, load<V>(codes + at * 32 + part) & 127);
    const V found = largest_of_eight(all);
    out[at] = 0;
    for (int part = 0; part < kWide; part += 8) out[at] = std::max(out[at], found[part]);
  }
}

// 32 weights of two scales through their maps; returns how many were saturated.
static inline __attribute__((always_inline)) int through(const Map& a, const Map& b, bool alternate,
                                                         const uint8_t* packed, uint8_t* out) {
#ifdef __AVX2__
  const auto tables = [](const uint8_t* of_a, const uint8_t* of_b) {
    return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(of_b), reinterpret_cast<const __m128i*>(of_a));
  };
  const __m256i mask = _mm256_set1_epi8(15);
  const __m128i whole = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed));
  const __m256i twofold = _mm256_permute4x64_epi64(_mm256_castsi128_si256(whole), 0x50);
  // In each half eight even columns, then eight odd ones.
  const __m256i at = _mm256_and_si256(_mm256_blend_epi32(twofold, _mm256_srli_epi16(twofold, 4), 0xCC), mask);
  __m256i found = _mm256_shuffle_epi8(tables(a.even, b.even), at);
  if (alternate) found = _mm256_blend_epi32(found, _mm256_shuffle_epi8(tables(a.odd, b.odd), at), 0xCC);
  const __m256i joined = _mm256_or_si256(found, _mm256_slli_epi16(_mm256_srli_si256(found, 8), 4));
  const __m256i bytes = _mm256_permute4x64_epi64(joined, 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(bytes));
  const __m256i above = _mm256_shuffle_epi8(tables(a.above, b.above), at);
  // Bit 0 of each byte to bit 7.
  return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_epi8(_mm256_slli_epi16(above, 7))));
#else
  (void)alternate;
  int saturated = 0;
  for (int at = 0; at < 16; ++at) {
    const Map& map = at < 8 ? a : b;
    const int even = packed[at] & 15, odd = packed[at] >> 4;
    out[at] = static_cast<uint8_t>(map.even[even] | map.odd[odd] << 4);
    saturated += map.above[even] + map.above[odd];
  }
  return saturated;
#endif
}

static void nvfp4(Maps& maps, const uint8_t* packed, const uint8_t* codes, int64_t blocks, uint8_t* out,
                  uint8_t* scales) {
  constexpr int kAtOnce = kWide / 16;
  Map rare[2];
  for (int64_t at = 0; at < blocks; at += kAtOnce) {
    const V both = load<V>(packed + at * 16);
    const V largest = largest_of_eight(larger<V>(both & 7, (V)((V16)both >> 4) & 7));
    for (int one = 0; one < kAtOnce; ++one) {
      const uint8_t* own = codes + (at + one) * 2;
      const int whole = std::max(maps.exponents[own[0]][largest[one * 16]], maps.exponents[own[1]][largest[one * 16 + 8]]);
      const int exponent = std::clamp(whole, -127, 127);
      const bool zero = whole == kNoWeights, clamped = whole != exponent;
      maps.zero_blocks += zero;
      maps.clamped += clamped && !zero;
      scales[at + one] = static_cast<uint8_t>(exponent + 127);
      const Map* found[2];
      for (int half = 0; half < 2; ++half) {
        const int away = std::min(exponent - maps.exponents[own[half]][7], kHighest);
        const Map* map = maps.known + own[half] * kSteps - kLowest + std::max(away, kLowest);
        if (clamped || away < kLowest || !map->known) map = &maps.find(maps, own[half], exponent, clamped, rare[half]);
        found[half] = map;
      }
      maps.saturated += through(*found[0], *found[1], maps.alternate, packed + (at + one) * 16, out + (at + one) * 16);
    }
  }
}

static int snap(const Thresholds& thresholds, const uint8_t* codes, bool alternate, uint8_t* out) {
  int saturated = 0;
  for (int part = 0; part < 32; part += kWide) {
    const V weights = load<V>(codes + part);
    const S magnitudes = (S)(weights & 127);
    V nibbles{};
    for (int at = 0; at < 7; ++at) nibbles -= (V)(magnitudes > (S)(V{} + thresholds.above[at]));
    V signs = (V)((V16)(weights & 0x80) >> 4);
    if (alternate) {
      const V zero = (V)(magnitudes == 0), odd = (V)(V16{} + 0x0800);
      signs = (signs & ~zero) | (zero & odd);
    }
    const V16 pairs = (V16)(nibbles | signs);
    store(out + part / 2, __builtin_convertvector(pairs | pairs >> 4, Half));
    const V over = (V)(magnitudes > (S)(V{} + thresholds.above[7]));
    for (int at = 0; at < kWide / 8; ++at) saturated += __builtin_popcountll(((V64)over)[at]) / 8;
  }
  return saturated;
}

}  // namespace moet::experts::MOET_LOOPS
