#include "kernels/cpu_experts/engine.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/cpu_experts/cpu.h"
#include "kernels/cpu_experts/plan.h"

namespace moet::cpu {
namespace {

// From so many tokens tdpbssd has been faster than vpdpbusd, on an Emerald Rapids; with one part it was not.
constexpr int kAmxTokens = 7;
// Round to nearest, denormals as they are, nothing trapped.
constexpr unsigned kFloatingPoint = 0x1f80;

std::atomic<std::uint32_t> forks{0};

void count_forks() {
  static const bool once = [] {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    return true;
  }();
  (void)once;
}

}  // namespace

Engine::Engine(const Config& given) : config(given) {
  count_forks();
  generation_ = forks.load();
  for (int tokens = 1; tokens <= kMaxTokens; tokens++) tables_[tokens] = &isa_table(isa_for(tokens));
  records_.assign(config.experts, nullptr);
  domain_count_ = 1 + *std::max_element(config.domains.begin(), config.domains.end());
  reserve(true);
  void* memory = mmap(nullptr, arena_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  arena_ = static_cast<std::uint8_t*>(memory);
  reserve(false);
  std::memset(arena_, 0, arena_size_);
  std::fill(place_, place_ + config.experts, static_cast<std::int16_t>(-1));
  // Units: a band of w1 with one of w3, then two of w2.
  const int rows[2] = {config.intermediate / kBand, config.hidden / kRows};
  for (int d = 0, before = 0; d < domain_count_; d++) {
    const int after = before + static_cast<int>(std::count(config.domains.begin(), config.domains.end(), d));
    for (int phase = 0; phase < 2; phase++) {
      domains_[d].begin[phase] = rows[phase] * before / threads();
      domains_[d].end[phase] = rows[phase] * after / threads();
    }
    before = after;
  }
  try {
    start();
  } catch (...) {
    munmap(arena_, arena_size_);
    throw;
  }
}

void Engine::start() {
  handles_.reserve(threads());
  for (int thread = 0; thread < threads(); thread++) starts_.push_back({this, thread});
  // Signals are for threads that nobody waits for; but a fault is its own thread's.
  sigset_t most, before;
  sigfillset(&most);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&most, fault);
  pthread_sigmask(SIG_SETMASK, &most, &before);
  for (Start& start : starts_) {
    pthread_t handle;
    if (pthread_create(
            &handle, nullptr,
            [](void* argument) -> void* {
              const Start& start = *static_cast<Start*>(argument);
              start.engine->work(start.thread);
              return nullptr;
            },
            &start))
      break;
    handles_.push_back(handle);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const std::size_t started = handles_.size();
  if (started == starts_.size()) return;
  close();
  throw std::runtime_error("only " + std::to_string(started) + " of " + std::to_string(threads()) +
                           " threads could be started");
}

Engine::~Engine() {
  if (forked()) return;  // Its threads and its queue are the parent's.
  close();
  munmap(arena_, arena_size_);
}

void Engine::close() {
  if (forked()) return;
  push(nullptr);
  const std::lock_guard<std::mutex> lock(ending_);
  for (pthread_t handle : handles_) pthread_join(handle, nullptr);
  handles_.clear();
}

bool Engine::forked() const { return generation_ != forks.load(std::memory_order_relaxed); }

Isa Engine::isa_for(int tokens) const {
  if (config.isa >= 0) return static_cast<Isa>(config.isa);
  if (config.parts == 2 && tokens >= kAmxTokens && isa_usable(kAmx)) return kAmx;
  for (const Isa isa : {kAvx512, kAvx2})
    if (isa_usable(isa)) return isa;
  return kScalar;
}

template <typename T>
T* Engine::carve(std::size_t count) {
  T* piece = arena_ ? reinterpret_cast<T*>(arena_ + carved_) : nullptr;
  carved_ += (count * sizeof(T) + 127) / 128 * 128;
  return piece;
}

void Engine::reserve(bool count_only) {
  carved_ = 0;
  const std::size_t tokens = kMaxTokens, pairs = tokens * config.slots;
  const std::size_t blocks = config.hidden / kBlock, h_blocks = down_superblocks() * kBlocks;
  const std::size_t bytes = static_cast<std::size_t>(kBlock) * config.parts;
  experts_ = carve<Expert>(pairs);
  place_ = carve<std::int16_t>(config.experts);
  pair_ = carve<std::int16_t>(pairs);
  all_q_ = carve<std::int8_t>(blocks * tokens * bytes);
  all_correction_ = carve<std::int32_t>(blocks * tokens);
  all_unit_ = carve<float>(blocks * tokens);
  q_ = carve<std::int8_t>(blocks * pairs * bytes);
  correction_ = carve<std::int32_t>(blocks * pairs);
  unit_ = carve<float>(blocks * pairs);
  h_ = carve<std::int8_t>(h_blocks * pairs * bytes);
  h_correction_ = carve<std::int32_t>(h_blocks * pairs);
  h_unit_ = carve<float>(h_blocks * pairs);
  halves_ = carve<std::uint16_t[kMaxTokens * kBand]>(h_blocks * pairs * 2);
  arrived_ = carve<std::atomic<std::uint8_t>>(h_blocks * pairs);
  results_ = carve<float>(static_cast<std::size_t>(threads()) * pairs * kRows);
  domains_ = carve<Domain>(domain_count_);
  if (count_only) arena_size_ = (carved_ + 4095) / 4096 * 4096;
}

void Engine::set_record(int expert, const std::uint8_t* record) { records_.at(expert) = record; }

bool Engine::submit(Job* job) {
  job->status.store(kWaiting, std::memory_order_relaxed);
  const bool here = !forked();
  if (here && push(job)) return true;
  if (job->tokens >= 1 && job->tokens <= kMaxTokens) fill(*job, std::numeric_limits<float>::quiet_NaN());
  job->status.store(here ? kClosed : kForked);
  return false;
}

// Without a job: the end of the threads. False after that.
bool Engine::push(Job* job) {
  const std::lock_guard<std::mutex> lock(pushing_);
  if (closed_) return false;
  closed_ = !job;
  const std::uint32_t ticket = pushed_.value.load(std::memory_order_relaxed) + 1;
  finished_.wait(0, [&](std::uint32_t done) { return ticket - done < kQueue; });
  if (job) job->ticket = ticket;
  queue_[ticket % kQueue] = job;
  pushed_.set(ticket);
  return true;
}

void Engine::wait(const Job* job) {
  // A ticket tells nothing of a job that was not submitted, or 2^31 jobs ago.
  if (forked() || job->status.load(std::memory_order_acquire) != kWaiting) return;
  const std::uint32_t ticket = job->ticket;
  finished_.wait(config.spin_ns, [=](std::uint32_t done) { return static_cast<std::int32_t>(done - ticket) >= 0; });
}

void Engine::everywhere(void (*task)(void*, int), void* context) {
  Task job{};
  job.engine = this;
  job.tokens = -1;
  job.task = task;
  job.context = context;
  if (!submit(&job)) throw std::runtime_error("this engine was closed, or its threads are in the process that forked");
  wait(&job);
}

void Engine::work(int thread) {
  if (config.cores[thread] >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(config.cores[thread], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  }
  _mm_setcsr(kFloatingPoint);
  if (thread == 0) return lead();
  for (std::uint32_t round = 1;; round++) {
    begun_.wait(config.spin_ns, [=](std::uint32_t last) { return last == round; });
    if (!job_) return;
    run(*job_, thread);
  }
}

// Of the first thread: takes jobs in their order, and shares those with all threads that have something to compute.
void Engine::lead() {
  std::uint32_t round = 0;
  for (std::uint32_t ticket = 1;; ticket++) {
    pushed_.wait(config.spin_ns, [=](std::uint32_t last) { return static_cast<std::int32_t>(last - ticket) >= 0; });
    job_ = queue_[ticket % kQueue];
    if (!job_) {
      begun_.set(++round);
      return;
    }
    if (job_->tokens < 0 || plan(*job_)) {
      begun_.set(++round);
      run(*job_, 0);
      if (job_->tokens >= 0) job_->status.store(kDone, std::memory_order_release);
    }
    finished_.set(ticket);
  }
}

}  // namespace moet::cpu

extern "C" {

void moet_cpu_experts_submit(void* job) {
  auto* it = static_cast<moet::cpu::Job*>(job);
  it->engine->submit(it);
}

void moet_cpu_experts_wait(void* job) {
  auto* it = static_cast<moet::cpu::Job*>(job);
  it->engine->wait(it);
}

void moet_cpu_experts_run(void* job) {
  moet_cpu_experts_submit(job);
  moet_cpu_experts_wait(job);
}
}
