// Loops over rows, compiled once for each instruction set; all give the same bits.
#pragma once

#include <cstdint>

namespace moet::experts {

// What 32 E4M3 weights of one scale need: magnitude index = how many of the first seven a weight's code exceeds.
struct Thresholds {
  uint8_t above[8];  // the last one is that of 6 units, for saturation
  uint8_t scale;
  bool known, clamped;
};

// What 16 E2M1 weights of one scale become: a nibble for each of the nibbles.
struct Map {
  uint8_t even[16], odd[16];  // by the parity of the column
  uint8_t above[16];          // 1 where a nibble's weight is above 6 units
  bool known;
};

// What rows of NVFP4 share.
struct Maps {
  // The exponent of a block whose largest weight is this magnitude index times this scale; kNoWeights of zeros.
  int exponents[128][8];
  // Gives the map of a scale's code in a block of this exponent; `clamped` where it is not what the weights ask for.
  const Map& (*find)(Maps& self, int code, int exponent, bool clamped, Map& rare);
  // By code, and how far the block's exponent is above that of six times the scale, from kLowest to kHighest.
  Map* known;
  bool alternate;
  int64_t zero_blocks, clamped, saturated;
};

constexpr int kNoWeights = -1 << 20, kLowest = -5, kHighest = 6, kSteps = kHighest - kLowest + 1;

struct Loops {
  const char* name;

  // Adds the numbers of nibbles 0 and 8.
  void (*zero_nibbles)(const uint8_t* packed, int64_t bytes, int64_t& positive, int64_t& negative);
  // Adds the numbers of bytes 0 and 0x80.
  void (*zero_bytes)(const uint8_t* codes, int64_t bytes, int64_t& positive, int64_t& negative);
  // Adds the number of blocks of 16 bytes whose nibbles are all 0 or 8.
  int64_t (*zero_blocks)(const uint8_t* packed, int64_t blocks);
  // Nibbles 0 and 8 become 0 in even columns and 8 in odd ones.
  void (*alternate)(const uint8_t* packed, int64_t bytes, uint8_t* out);
  // Adds to the histogram of nibbles.
  void (*histogram)(const uint8_t* packed, int64_t bytes, int64_t counts[16]);

  // A row of NVFP4: nibbles and E4M3 scales of each 16, to nibbles and UE8M0 scales of each 32.
  void (*nvfp4)(Maps& maps, const uint8_t* packed, const uint8_t* codes, int64_t blocks, uint8_t* out, uint8_t* scales);
  // The largest code, without sign, of each 32.
  void (*largest_bytes)(const uint8_t* codes, int64_t groups, uint8_t* out);
  // 32 E4M3 codes to 16 bytes of nibbles; returns how many were saturated.
  int (*snap)(const Thresholds& thresholds, const uint8_t* codes, bool alternate, uint8_t* out);

  // 16 rows of nibbles (`stride` bytes apart) to planes; 64 columns a block.
  void (*codes)(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane);
  void (*nibbles)(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane);
  void (*quintal)(const uint8_t* rows, int64_t stride, int64_t blocks, uint8_t* plane);
};

const Loops& portable_loops();
// Null where this build or this CPU has none.
const Loops* avx2_loops();

}  // namespace moet::experts
