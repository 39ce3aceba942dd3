#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tools/experts/native/codec.h"
#include "tools/experts/native/loops.h"

namespace moet::experts {
namespace {

constexpr int kRows = 16, kBlock = 32, kLeast = -127, kMost = 127;
constexpr double kMidpoints[8] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0};
constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
double e4m3(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

const std::array<double, 128> kE4m3 = [] {
  std::array<double, 128> values{};
  for (int code = 0; code < 127; ++code) values[code] = e4m3(code);
  return values;
}();

// The largest code whose value times `scale` is at most `most`: a quotient first, which may be one off, then exactly.
uint8_t largest_not_above(double most, double scale) {
  if (scale == 0) return 126;
  const double quotient = most / scale;
  int code = 126;
  if (quotient < 0x1p-6) {
    code = static_cast<int>(quotient * 512);
  } else if (quotient < 448) {
    code = static_cast<int>((std::bit_cast<uint64_t>(quotient) >> 49) - (1016 << 3));
  }
  while (code < 126 && kE4m3[code + 1] * scale <= most) ++code;
  while (code > 0 && kE4m3[code] * scale > most) --code;
  return static_cast<uint8_t>(code);
}

bool usable(float scale) { return std::isfinite(scale) && !std::signbit(scale); }

[[noreturn]] void refuse_scale() { throw std::invalid_argument("a scale is NaN, infinite or negative"); }

int clamp(int exponent) { return std::clamp(exponent, kLeast, kMost); }

bool alternates(ZeroMode mode, const Counts& counts) {
  const int64_t all = counts.positive_zeros + counts.negative_zeros;
  if (mode == ZeroMode::kAuto) return std::min(counts.positive_zeros, counts.negative_zeros) * 20 < all;
  return mode == ZeroMode::kAlt && all > 0;
}

// Gives 16 rows of nibbles at a time, and their scales.
class Rows {
 public:
  virtual ~Rows() = default;
  // Checks all scales and counts exact zeros.
  virtual void look(Counts& counts) = 0;
  // Writes rows [16, columns / 2] and scales [16, columns / 32] from `row` on; or points to those of the source.
  virtual const uint8_t* give(int64_t row, bool alternate, uint8_t* rows, uint8_t* scales, Counts& counts) = 0;
};

class Mxfp4 final : public Rows {
 public:
  Mxfp4(const Loops& loops, const Source& source) : loops_(loops), source_(source) {}

  void look(Counts& counts) override {
    const int64_t scales = source_.rows * source_.columns / kBlock;
    if (std::memchr(source_.scales, 255, scales) != nullptr) throw std::invalid_argument("a scale is NaN");
    loops_.zero_nibbles(source_.codes, source_.rows * source_.columns / 2, counts.positive_zeros, counts.negative_zeros);
    if (counts.positive_zeros + counts.negative_zeros >= kBlock)
      counts.zero_blocks = loops_.zero_blocks(source_.codes, scales);
  }

  const uint8_t* give(int64_t row, bool alternate, uint8_t* rows, uint8_t* scales, Counts&) override {
    const int64_t bytes = source_.columns / 2, groups = source_.columns / kBlock;
    std::memcpy(scales, source_.scales + row * groups, kRows * groups);
    const uint8_t* from = source_.codes + row * bytes;
    if (!alternate) return from;
    loops_.alternate(from, kRows * bytes, rows);
    return rows;
  }

 private:
  const Loops& loops_;
  const Source& source_;
};

class Nvfp4 final : public Rows {
 public:
  Nvfp4(const Loops& loops, const Source& source) : loops_(loops), source_(source), known_(128 * kSteps) {
    if (!usable(source.scale_2)) refuse_scale();
    for (int code = 0; code < 127; ++code) {
      maps_.values[code] = kE4m3[code] * static_cast<double>(source.scale_2);
      for (int magnitude = 0; magnitude < 8; ++magnitude) {
        const double amax = kMagnitudes[magnitude] * maps_.values[code];
        maps_.exponents[code][magnitude] = amax > 0 ? exponent_of(amax) : kNoWeights;
      }
    }
    maps_.known = known_.data();
    maps_.find = &find;
  }

  void look(Counts& counts) override {
    const int64_t groups = source_.rows * source_.columns / 16;
    bool zero_scales = source_.scale_2 == 0;
    for (int64_t at = 0; at < groups; ++at) {
      if (source_.scales[at] >= 127) refuse_scale();
      zero_scales |= source_.scales[at] == 0;
    }
    loops_.zero_nibbles(source_.codes, groups * 8, counts.positive_zeros, counts.negative_zeros);
    if (!zero_scales) return;
    // Weights of a scale of zero are zero too; those that are not counted yet have a magnitude.
    for (int64_t at = 0; at < groups; ++at) {
      if (maps_.values[source_.scales[at]] != 0) continue;
      for (int byte = 0; byte < 8; ++byte) {
        const int both = source_.codes[at * 8 + byte];
        for (const int nibble : {both & 15, both >> 4})
          if ((nibble & 7) != 0) ++(nibble & 8 ? counts.negative_zeros : counts.positive_zeros);
      }
    }
  }

  const uint8_t* give(int64_t row, bool alternate, uint8_t* rows, uint8_t* scales, Counts& counts) override {
    const int64_t blocks = source_.columns / kBlock;
    maps_.alternate = alternate;
    maps_.zero_blocks = maps_.clamped = maps_.saturated = 0;
    for (int64_t one = 0; one < kRows; ++one) {
      const int64_t at = (row + one) * blocks;
      loops_.nvfp4(maps_, source_.codes + at * 16, source_.scales + at * 2, blocks, rows + one * blocks * 16,
                   scales + one * blocks);
    }
    counts.zero_blocks += maps_.zero_blocks;
    counts.clamped += maps_.clamped;
    counts.saturated += maps_.saturated;
    return rows;
  }

 private:
  struct WithValues : Maps {
    double values[128];
  };

  static const Map& find(Maps& maps, int code, int exponent, bool clamped, Map& rare) {
    const int highest = maps.exponents[code][7];
    const int away = highest == kNoWeights ? kHighest : exponent - highest;
    // From kHighest on 6 times the scale is at most a quarter of a unit. Below kLowest the 16 columns are all zero.
    const bool usual = !clamped && away >= kLowest;
    Map& map = usual ? maps.known[code * kSteps - kLowest + std::min(away, kHighest)] : rare;
    if (usual && map.known) return map;
    for (int nibble = 0; nibble < 16; ++nibble) {
      const double value = kMagnitudes[nibble & 7] * static_cast<WithValues&>(maps).values[code];
      const double units = std::ldexp(value, -exponent);
      int found = 0;
      while (found < 7 && units > kMidpoints[found]) ++found;
      map.above[nibble] = units > 6;
      const bool zero = maps.alternate && units == 0;
      map.even[nibble] = static_cast<uint8_t>(zero ? 0 : found | (nibble & 8));
      map.odd[nibble] = static_cast<uint8_t>(zero ? 8 : found | (nibble & 8));
    }
    map.known = true;
    return map;
  }

  const Loops& loops_;
  const Source& source_;
  WithValues maps_{};
  std::vector<Map> known_;
};

class Fp8Block final : public Rows {
 public:
  Fp8Block(const Loops& loops, const Source& source)
      : loops_(loops),
        source_(source),
        across_((source.columns + 127) / 128),
        thresholds_(across_ * 128),
        largest_(source.columns / kBlock) {}

  void look(Counts& counts) override {
    const int64_t down = (source_.rows + 127) / 128;
    for (int64_t at = 0; at < down * across_; ++at)
      if (!usable(source_.block_scales[at])) refuse_scale();
    loops_.zero_bytes(source_.codes, source_.rows * source_.columns, counts.positive_zeros, counts.negative_zeros);
    for (int64_t at = 0; at < down * across_; ++at)
      if (source_.block_scales[at] == 0) look_closely(at, counts);
  }

  const uint8_t* give(int64_t row, bool alternate, uint8_t* rows, uint8_t* scales, Counts& counts) override {
    const int64_t groups = source_.columns / kBlock;
    if (row % 128 == 0)
      for (Thresholds& one : thresholds_) one.known = false;
    const float* own = source_.block_scales + row / 128 * across_;
    for (int64_t r = row; r < row + kRows; ++r, rows += source_.columns / 2, scales += groups) {
      const uint8_t* codes = source_.codes + r * source_.columns;
      loops_.largest_bytes(codes, groups, largest_.data());
      for (int64_t at = 0; at < groups; ++at) {
        if (largest_[at] == 127) throw std::invalid_argument("a weight is NaN");
        Thresholds& one = thresholds_[at / 4 * 128 + largest_[at]];
        if (!one.known) fill(one, own[at / 4], largest_[at]);
        const bool zero = largest_[at] == 0 || own[at / 4] == 0;
        counts.zero_blocks += zero;
        counts.clamped += one.clamped;
        scales[at] = one.scale;
        if (alternate && zero) {
          std::memset(rows + at * 16, 0x80, 16);
        } else {
          counts.saturated += loops_.snap(one, codes + at * kBlock, alternate, rows + at * 16);
        }
      }
    }
    return rows - kRows * source_.columns / 2;
  }

 private:
  void look_closely(int64_t block, Counts& counts) const {
    const int64_t top = block / across_ * 128, left = block % across_ * 128;
    for (int64_t row = top; row < std::min(top + 128, source_.rows); ++row) {
      for (int64_t column = left; column < std::min(left + 128, source_.columns); ++column) {
        const uint8_t code = source_.codes[row * source_.columns + column];
        if ((code & 127) != 0) ++(code & 128 ? counts.negative_zeros : counts.positive_zeros);
      }
    }
  }

  static void fill(Thresholds& one, float scale, int largest) {
    const double exact = scale, amax = kE4m3[largest] * exact;
    const int whole = amax > 0 ? exponent_of(amax) : kLeast, exponent = clamp(whole);
    one.clamped = whole != exponent;
    one.scale = static_cast<uint8_t>(exponent + 127);
    for (int at = 0; at < 8; ++at) one.above[at] = largest_not_above(std::ldexp(kMidpoints[at], exponent), exact);
    one.known = true;
  }

  const Loops& loops_;
  const Source& source_;
  int64_t across_;
  std::vector<Thresholds> thresholds_;
  std::vector<uint8_t> largest_;
};

void transpose_scales(const uint8_t* scales, int64_t groups, uint8_t* plane) {
  for (int64_t at = 0; at < groups; ++at)
    for (int row = 0; row < kRows; ++row) plane[at * kRows + row] = scales[row * groups + at];
}

}  // namespace

int exponent_of(double amax) {
  // 6 sqrt(2) / 16 lies between this significand and the next.
  constexpr double kHalfway = 0x1.0f876ccdf6cd9p-1;
  int exponent;
  return (std::frexp(amax, &exponent) > kHalfway) + exponent - 4;
}

void quantize(const Loops& loops, const Source& source, ZeroMode mode, const Planes& planes, Counts& counts) {
  Mxfp4 mxfp4(loops, source);
  std::vector<uint8_t> rows(kRows * source.columns / 2), scales(kRows * source.columns / kBlock);
  const auto run = [&](Rows& from) {
    from.look(counts);
    const bool alternate = alternates(mode, counts);
    counts.alternated = alternate;
    const int64_t stride = source.columns / 2, blocks = source.columns / 64, groups = source.columns / kBlock;
    for (int64_t row = 0; row < source.rows; row += kRows) {
      const uint8_t* nibbles = from.give(row, alternate, rows.data(), scales.data(), counts);
      loops.histogram(nibbles, kRows * stride, counts.histogram);
      loops.codes(nibbles, stride, blocks, planes.codes + row * source.columns / 4);
      transpose_scales(scales.data(), groups, planes.scales + row * groups);
      if (planes.kind == Delta::kFp4) loops.nibbles(nibbles, stride, blocks, planes.delta + row * source.columns / 2);
      if (planes.kind == Delta::kQuintal)
        loops.quintal(nibbles, stride, blocks, planes.delta + row * source.columns * 5 / 16);
    }
  };
  if (source.scheme == Scheme::kMxfp4) {
    run(mxfp4);
  } else if (source.scheme == Scheme::kNvfp4) {
    Nvfp4 nvfp4(loops, source);
    run(nvfp4);
  } else {
    Fp8Block fp8(loops, source);
    run(fp8);
  }
}

}  // namespace moet::experts
