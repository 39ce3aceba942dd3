// Plain C++, for any x86-64: no instruction beyond SSE2.
#include <cstring>

#include "kernels/cpu_experts/kernel.h"

namespace moet::cpu {
namespace {

#include "kernels/cpu_experts/between.inc"

// Twice the value of each code.
constexpr int kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float scale_of(std::uint8_t byte) {
  if (byte == 255) return bits_to_float(0x7fc00000u);
  return bits_to_float(byte ? static_cast<std::uint32_t>(byte) << 23 : 0x00400000u);
}

template <int M, int P>
void rows(const std::uint8_t* a, const std::uint8_t* b, int superblocks, const Activations& x, Next, float* out) {
  for (int band = 0; band < 2; band++)
    for (int row = 0; row < kBand; row++) {
      float sum[M] = {};
      for (int block = 0; block < superblocks * kBlocks; block++) {
        const std::uint8_t* superblock = (band ? b : a) + static_cast<std::size_t>(block / kBlocks) * kSuperblock;
        const std::uint8_t* codes = superblock + kScaleBytes + block % kBlocks * kBlockBytes + row * 4;
        const float scale = scale_of(superblock[block % kBlocks * kBand + row]);
        for (int m = 0; m < M; m++) {
          const std::size_t place = static_cast<std::size_t>(block) * M + m;
          const std::int8_t* q = x.q + place * P * kBlock;
          int dot = 0;
          for (int i = 0; i < kBlock; i++) {
            const int value = P == 2 ? q[i] * 256 + q[(P - 1) * kBlock + i] : q[i];
            // Byte i of q is in word i / 4: of quarter i / 8, low nibble or high.
            dot += value * kTwice[codes[i / 8 * 64 + i % 4] >> (i / 4 % 2 * 4) & 15];
          }
          sum[m] = __builtin_fmaf(static_cast<float>(dot), x.unit[place] * scale, sum[m]);
        }
      }
      for (int m = 0; m < M; m++) out[(band * M + m) * kBand + row] = sum[m];
    }
}

}  // namespace

const Table& scalar_table() {
  static constexpr Table table = {
      {{}, MOET_KERNELS(rows, 1), MOET_KERNELS(rows, 2)}, quantize, swiglu, add_scaled, store};
  return table;
}

}  // namespace moet::cpu
