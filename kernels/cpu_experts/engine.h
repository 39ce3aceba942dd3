// y[t] = sum over j of weight[t, j] * W2 (swiglu(W1 x[t], W3 x[t])) with the matrices of expert ids[t, j].
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "kernels/cpu_experts/kernel.h"
#include "kernels/cpu_experts/pool.h"

namespace moet::cpu {

class Engine;

enum Status : std::int32_t {
  kWaiting = 0,
  kDone = 1,
  kNoRecord = 2,
  kBadShape = 3,
  kForked = 4,
  kClosed = 5,
  kNotSubmitted = 6
};

// Of a call, by address: memory that stays, so that a captured graph can name it.
struct Job {
  Engine* engine;
  const std::uint16_t* x;     // bfloat16 [tokens][hidden]
  const std::int32_t* ids;    // [tokens][slots]; below 0 is computed elsewhere
  const float* weights;       // [tokens][slots]
  float* out32;               // [tokens][hidden], or null
  std::uint16_t* out16;       // the same in bfloat16, or null
  std::int32_t tokens, slots;
  std::int32_t base;          // added to ids that are not below 0: the first expert of a layer
  std::atomic<std::int32_t> status;
  std::uint32_t ticket;
};

struct Config {
  int hidden, intermediate, experts, slots, parts;
  float limit;
  int isa;  // of Isa, or -1: by the count of tokens
  std::int64_t spin_ns;
  // One thread for each; those of a domain beside each other. A core below 0 is no core: the thread is not pinned.
  std::vector<int> cores, domains;
};

class Engine {
 public:
  explicit Engine(const Config& config);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void set_record(int expert, const std::uint8_t* record);
  // Never allocates, never blocks but for a full queue. False when there are no threads: after close(), and in a process
  // that was forked off. Outputs are NaN then.
  bool submit(Job* job);
  void wait(const Job* job);
  // Returns when the threads have ended, after what was submitted before.
  void close();

  // Runs `task(context, thread)` on all threads, between jobs.
  void everywhere(void (*task)(void*, int), void* context);

  const Config config;
  // Of 16 rows of w2: the last is filled up where intermediate is no multiple of 128.
  int down_superblocks() const { return (config.intermediate + kBlocks * kBlock - 1) / (kBlocks * kBlock); }
  int threads() const { return static_cast<int>(config.cores.size()); }
  bool forked() const;
  Isa isa_for(int tokens) const;

 private:
  struct Expert;
  struct Domain;
  struct Unit;
  struct Task;
  struct Start {
    Engine* engine;
    int thread;
  };

  void start();
  bool push(Job* job);
  void work(int thread);
  void lead();
  bool plan(Job& job);
  void run(Job& job, int thread);
  void fill(const Job& job, float value) const;
  void prepare(const Job& job, int block);
  bool take(int phase, int domain, Unit& unit);
  Next start_of(const Unit& unit) const;
  void up(const Unit& unit, Next after);
  void down(const Job& job, const Unit& unit, Next after, float* results);
  template <typename T>
  T* carve(std::size_t count);
  void reserve(bool count_only);
  static constexpr std::uint32_t kQueue = 256;
  // What is computed now; null ends the threads.
  Job* job_ = nullptr;
  int expert_count_ = 0;
  bool all_ = false;  // Some expert is for all tokens.

  const Table* tables_[kMaxTokens + 1] = {};
  std::vector<const std::uint8_t*> records_;
  std::vector<pthread_t> handles_;
  std::vector<Start> starts_;

  // One piece of memory for all that a job needs.
  std::uint8_t* arena_ = nullptr;
  std::size_t arena_size_ = 0, carved_ = 0;
  Expert* experts_ = nullptr;
  std::int16_t* place_ = nullptr;  // of a record among experts_, or -1
  std::int16_t* pair_ = nullptr;   // [token][slot] of the row of results, or -1
  std::int8_t *all_q_ = nullptr, *q_ = nullptr, *h_ = nullptr;
  std::int32_t *all_correction_ = nullptr, *correction_ = nullptr, *h_correction_ = nullptr;
  float *all_unit_ = nullptr, *unit_ = nullptr, *h_unit_ = nullptr;
  std::uint16_t (*halves_)[kMaxTokens * 16] = nullptr;  // [expert][block][half] of h before it is quantized
  std::atomic<std::uint8_t>* arrived_ = nullptr;        // [expert][block]: halves that are there
  float* results_ = nullptr;  // [thread][pair][32]
  Domain* domains_ = nullptr;
  int domain_count_ = 0;

  std::mutex pushing_, ending_;
  bool closed_ = false;
  Job* queue_[kQueue] = {};
  Signal pushed_, begun_, finished_;
  Barrier barrier_;
  std::uint32_t generation_ = 0;
};

}  // namespace moet::cpu

// For cudaLaunchHostFunc: each takes a Job*. No CUDA call in them.
extern "C" {
__attribute__((visibility("default"))) void moet_cpu_experts_submit(void* job);
__attribute__((visibility("default"))) void moet_cpu_experts_wait(void* job);
__attribute__((visibility("default"))) void moet_cpu_experts_run(void* job);
}
