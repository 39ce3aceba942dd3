// The 2-bit quantizer in machine code: the same bits as tools/experts/quantize/numpy_form.py.
#pragma once

#include <cstdint>

namespace moet::experts {

enum class Scheme { kMxfp4, kNvfp4, kFp8Block };
enum class ZeroMode { kAuto, kSign, kAlt };
enum class Delta { kNone, kFp4, kQuintal };

// A matrix [rows, columns] as a checkpoint has it; rows are a multiple of 16, columns of 64.
struct Source {
  Scheme scheme;
  const uint8_t* codes;        // E2M1, two a byte; of kFp8Block E4M3
  const uint8_t* scales;       // UE8M0 [rows, columns / 32] or E4M3 [rows, columns / 16]
  const float* block_scales;   // of kFp8Block: [rows / 128, columns / 128], both rounded up
  float scale_2;
  int64_t rows, columns;
};

// Where its planes go.
struct Planes {
  uint8_t* codes;
  uint8_t* scales;
  uint8_t* delta;
  Delta kind;
};

// As in facts.py, in the order of its numbers.
struct Counts {
  int64_t histogram[16] = {};
  int64_t positive_zeros = 0, negative_zeros = 0, alternated = 0, zero_blocks = 0, saturated = 0, clamped = 0;
};

struct Loops;

// Quantizes a matrix with the loops of one instruction set. Throws std::invalid_argument for what cannot be quantized.
void quantize(const Loops& loops, const Source& source, ZeroMode mode, const Planes& planes, Counts& counts);

// The rounding of a scale's exponent, before it is clamped; amax > 0.
int exponent_of(double amax);

}  // namespace moet::experts
