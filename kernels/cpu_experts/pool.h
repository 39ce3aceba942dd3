// Threads that wait for work by spinning, then parked; barriers among them.
#pragma once

#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace moet::cpu {

using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == 4 && Word::is_always_lock_free);

inline void futex_wait(Word& word, std::uint32_t while_it_is) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, while_it_is, nullptr, nullptr, 0);
}

inline void futex_wake(Word& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
}

// A word that changes, and those who wait for that.
struct Signal {
  alignas(64) Word value{0};
  alignas(64) Word parked{0};

  void set(std::uint32_t to) {
    value.store(to, std::memory_order_seq_cst);
    wake();
  }
  void wake() {
    if (parked.load(std::memory_order_seq_cst)) futex_wake(value);
  }

  // Returns when `reached(value)`; spins for `spin_ns`, giving the core away now and then, and is parked after that.
  template <typename Reached>
  void wait(std::int64_t spin_ns, Reached reached) {
    using Clock = std::chrono::steady_clock;
    for (int i = 0; i < 256; i++) {
      if (reached(value.load(std::memory_order_acquire))) return;
      _mm_pause();
    }
    const auto end = Clock::now() + std::chrono::nanoseconds(spin_ns);
    for (;;) {
      for (int i = 0; i < 64; i++) {
        if (reached(value.load(std::memory_order_acquire))) return;
        _mm_pause();
      }
      if (Clock::now() >= end) break;
      sched_yield();
    }
    for (;;) {
      parked.fetch_add(1, std::memory_order_seq_cst);
      const std::uint32_t now = value.load(std::memory_order_seq_cst);
      if (!reached(now)) futex_wait(value, now);
      parked.fetch_sub(1, std::memory_order_relaxed);
      if (reached(value.load(std::memory_order_acquire))) return;
    }
  }
};

// For a fixed count of threads, all of them running: spins, and gives the core away where there are fewer cores.
struct Barrier {
  alignas(64) Word arrived{0};
  alignas(64) Word round{0};

  void wait(std::uint32_t threads) {
    const std::uint32_t mine = round.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
      arrived.store(0, std::memory_order_relaxed);
      round.store(mine + 1, std::memory_order_release);
      return;
    }
    for (int i = 1; round.load(std::memory_order_acquire) == mine; i++) {
      _mm_pause();
      if (i % 2048 == 0) sched_yield();
    }
  }
};

}  // namespace moet::cpu
