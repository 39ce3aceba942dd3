// A job, as its threads compute it: activations are quantized; units of 16 rows of w1 and w3 of an expert make half a
// block of its h; units of 32 rows of w2 of all experts make 32 outputs. Which thread takes a unit changes no bit.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu_experts/plan.h"

namespace moet::cpu {

void Engine::fill(const Job& job, float value) const {
  const std::size_t n = static_cast<std::size_t>(job.tokens) * config.hidden;
  if (job.out32) std::fill_n(job.out32, n, value);
  if (job.out16) std::fill_n(job.out16, n, static_cast<std::uint16_t>(value == value ? 0 : 0x7fc0));
}

// False when nothing is left to be computed: the job has its outputs and its status.
bool Engine::plan(Job& job) {
  expert_count_ = 0;
  if (job.tokens < 1 || job.tokens > kMaxTokens || job.slots < 1 || job.slots > config.slots) {
    job.status.store(kBadShape);
    return false;
  }
  bool good = true;
  // Read once: who writes to ids too early gets other experts, but not other memory.
  for (int at = 0; at < job.tokens * job.slots && good; at++) {
    pair_[at] = -1;
    const std::int32_t id = static_cast<const volatile std::int32_t*>(job.ids)[at];
    if (id < 0) continue;
    const std::int64_t index = std::int64_t{job.base} + id;
    good = index >= 0 && index < config.experts && records_[index];
    if (!good) break;
    if (place_[index] < 0) {
      place_[index] = static_cast<std::int16_t>(expert_count_);
      Expert& made = experts_[expert_count_++];
      made.record = records_[index];
      made.index = static_cast<std::int32_t>(index);
      made.tokens = 0;
    }
    pair_[at] = place_[index];
    Expert& expert = experts_[place_[index]];
    const int token = at / job.slots;
    // The same expert in two slots of a token is computed once.
    if (!expert.tokens || expert.token[expert.tokens - 1] != token) expert.token[expert.tokens++] = token;
  }
  int pairs = 0;
  const int blocks = config.hidden / kBlock;
  const std::size_t bytes = static_cast<std::size_t>(kBlock) * config.parts;
  all_ = false;
  for (int e = 0; e < expert_count_; e++) {
    Expert& expert = experts_[e];
    expert.first = pairs;
    const std::size_t begin = static_cast<std::size_t>(pairs) * blocks;
    const bool all = expert.tokens == job.tokens;
    expert.x = all ? Activations{all_q_, all_correction_, all_unit_}
                   : Activations{q_ + begin * bytes, correction_ + begin, unit_ + begin};
    all_ |= all;
    pairs += expert.tokens;
  }
  for (int at = 0; at < job.tokens * job.slots && good; at++) {
    if (pair_[at] < 0) continue;
    const Expert& expert = experts_[pair_[at]];
    const auto* token = std::find(expert.token, expert.token + expert.tokens, at / job.slots);
    pair_[at] = static_cast<std::int16_t>(expert.first + (token - expert.token));
  }
  for (int e = 0; e < expert_count_; e++) place_[experts_[e].index] = -1;
  if (!good || !expert_count_) {
    fill(job, good ? 0.f : std::numeric_limits<float>::quiet_NaN());
    job.status.store(good ? kDone : kNoRecord);
    return false;
  }
  for (int d = 0; d < domain_count_; d++)
    for (auto& taken : domains_[d].taken) taken.store(0, std::memory_order_relaxed);
  return true;
}

void Engine::run(Job& job, int thread) {
  const int n = threads();
  if (job.tokens < 0) {
    const Task& it = static_cast<Task&>(job);
    it.task(it.context, thread);
    barrier_.wait(n);
    return;
  }
  const int blocks = config.hidden / kBlock, domain = config.domains[thread];
  for (int block = blocks * thread / n; block < blocks * (thread + 1) / n; block++) prepare(job, block);
  barrier_.wait(n);
  float* results = results_ + static_cast<std::size_t>(thread) * kMaxTokens * config.slots * kRows;
  Unit unit, after;
  bool some = take(0, domain, unit) || take(1, domain, unit);
  bool first_phase = true;
  while (some) {
    // Known one unit ahead, so that the streams of weights do not end between units, nor at the barrier.
    const bool more = (unit.phase == 0 && take(0, domain, after)) || take(1, domain, after);
    const Next next = start_of(more ? after : unit);
    if (unit.phase == 1 && first_phase) {
      barrier_.wait(n);
      first_phase = false;
    }
    if (unit.phase == 0)
      up(unit, next);
    else
      down(job, unit, next, results);
    unit = after;
    some = more;
  }
  if (first_phase) barrier_.wait(n);
  barrier_.wait(n);
}

void Engine::prepare(const Job& job, int block) {
  const std::size_t bytes = static_cast<std::size_t>(kBlock) * config.parts;
  alignas(64) std::int8_t q[kMaxTokens][2 * kBlock];
  std::int32_t correction[kMaxTokens];
  float unit[kMaxTokens];
  for (int t = 0; t < job.tokens; t++)
    tables_[1]->quantize(job.x + static_cast<std::size_t>(t) * config.hidden + block * kBlock, config.parts, q[t],
                         &correction[t], &unit[t]);
  const auto put = [&](int t, std::size_t place, std::int8_t* to_q, std::int32_t* to_correction, float* to_unit) {
    std::memcpy(to_q + place * bytes, q[t], bytes);
    to_correction[place] = correction[t];
    to_unit[place] = unit[t];
  };
  if (all_)
    for (int t = 0; t < job.tokens; t++)
      put(t, static_cast<std::size_t>(block) * job.tokens + t, all_q_, all_correction_, all_unit_);
  for (int e = 0; e < expert_count_; e++) {
    const Expert& expert = experts_[e];
    if (expert.tokens == job.tokens) continue;
    const std::size_t begin = static_cast<std::size_t>(expert.first) * (config.hidden / kBlock);
    for (int m = 0; m < expert.tokens; m++)
      put(expert.token[m], begin + static_cast<std::size_t>(block) * expert.tokens + m, q_, correction_, unit_);
  }
}

bool Engine::take(int phase, int domain, Unit& unit) {
  Domain& mine = domains_[domain];
  const int rows = mine.end[phase] - mine.begin[phase], count = phase == 0 ? rows * expert_count_ : rows;
  if (mine.taken[phase].load(std::memory_order_relaxed) >= count) return false;
  const int at = mine.taken[phase].fetch_add(1, std::memory_order_relaxed);
  if (at >= count) return false;
  unit = phase == 0 ? Unit{0, at / rows, mine.begin[0] + at % rows} : Unit{1, 0, mine.begin[1] + at};
  return true;
}

Next Engine::start_of(const Unit& unit) const {
  const std::size_t superblocks = unit.phase == 0 ? config.hidden / 128 : down_superblocks();
  const std::size_t band = superblocks * kSuperblock;
  const std::size_t matrix = static_cast<std::size_t>(config.intermediate / kBand) * (config.hidden / 128) * kSuperblock;
  const std::uint8_t* record = experts_[unit.expert].record;
  if (unit.phase == 0) return {record + unit.row * band, record + matrix + unit.row * band};
  const std::uint8_t* start = record + 2 * matrix + static_cast<std::size_t>(unit.row) * 2 * band;
  return {start, start + band};
}

void Engine::up(const Unit& unit, Next after) {
  const Expert& expert = experts_[unit.expert];
  const Table& table = *tables_[expert.tokens];
  const int tokens = expert.tokens, blocks = down_superblocks() * kBlocks, block = unit.row / 2;
  const Next now = start_of(unit);
  alignas(64) float out[2 * kMaxTokens * kBand];
  table.kernel[config.parts][tokens](now.a, now.b, config.hidden / 128, expert.x, after, out);
  const std::size_t begin = static_cast<std::size_t>(expert.first) * blocks + static_cast<std::size_t>(block) * tokens;
  std::uint16_t(*halves)[kMaxTokens * kBand] = halves_ + (static_cast<std::size_t>(unit.expert) * blocks + block) * 2;
  table.swiglu(out, out + tokens * kBand, tokens * kBand, config.limit, halves[unit.row % 2]);
  // Who comes second has both halves of the block, and leaves the count as it was.
  std::atomic<std::uint8_t>& arrived = arrived_[static_cast<std::size_t>(unit.expert) * blocks + block];
  if (arrived.fetch_add(1, std::memory_order_acq_rel) == 0) return;
  arrived.store(0, std::memory_order_relaxed);
  for (int m = 0; m < tokens; m++) {
    std::uint16_t values[kBlock];
    std::memcpy(values, halves[0] + m * kBand, sizeof values / 2);
    std::memcpy(values + kBand, halves[1] + m * kBand, sizeof values / 2);
    const std::size_t place = begin + m;
    table.quantize(values, config.parts, h_ + place * kBlock * config.parts, h_correction_ + place, h_unit_ + place);
  }
  if (block + 1 < config.intermediate / kBlock) return;
  // What w2 is filled up for: zeros, where another job may have left something.
  const std::size_t rest = static_cast<std::size_t>(blocks - block - 1) * tokens, place = begin + tokens;
  std::memset(h_ + place * kBlock * config.parts, 0, rest * kBlock * config.parts);
  std::fill_n(h_correction_ + place, rest, 0);
  std::fill_n(h_unit_ + place, rest, 0.f);
}

void Engine::down(const Job& job, const Unit& unit, Next after, float* results) {
  const int blocks = down_superblocks() * kBlocks;
  const Table& any = *tables_[1];
  alignas(64) float out[2 * kMaxTokens * kBand];
  Unit here = unit;
  for (here.expert = 0; here.expert < expert_count_; here.expert++) {
    const Expert& expert = experts_[here.expert];
    const std::size_t begin = static_cast<std::size_t>(expert.first) * blocks;
    const Activations x = {h_ + begin * kBlock * config.parts, h_correction_ + begin, h_unit_ + begin};
    const Next now = start_of(here);
    const Unit beside{1, here.expert + 1, here.row};
    tables_[expert.tokens]->kernel[config.parts][expert.tokens](
        now.a, now.b, down_superblocks(), x, beside.expert < expert_count_ ? start_of(beside) : after, out);
    for (int half = 0; half < 2; half++)
      for (int m = 0; m < expert.tokens; m++)
        std::memcpy(results + (expert.first + m) * kRows + half * kBand, out + (half * expert.tokens + m) * kBand,
                    kBand * sizeof(float));
  }
  for (int t = 0; t < job.tokens; t++) {
    alignas(64) float sum[kRows] = {};
    for (int slot = 0; slot < job.slots; slot++) {
      const int at = t * job.slots + slot;
      if (pair_[at] >= 0) any.add_scaled(job.weights[at], results + pair_[at] * kRows, kRows, sum);
    }
    const std::size_t to = static_cast<std::size_t>(t) * config.hidden + static_cast<std::size_t>(unit.row) * kRows;
    any.store(sum, kRows, job.out32 ? job.out32 + to : nullptr, job.out16 ? job.out16 + to : nullptr);
  }
}

}  // namespace moet::cpu
