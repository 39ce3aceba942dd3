// Threads that share out jobs; whoever asks helps.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace moet::storage {

class Pool {
 public:
  // Works on up to `threads` jobs at a time, the caller's own thread counted; fewer where the system gives no more.
  explicit Pool(unsigned threads) {
    try {
      for (unsigned i = 1; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error &) {
      return;
    }
  }

  ~Pool() {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      over_ = true;
    }
    more_.notify_all();
    for (std::thread &thread : threads_) thread.join();
  }

  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // Runs job(0) to job(jobs - 1), which must not throw; returns when all are over. Callers take turns.
  void run(std::size_t jobs, const std::function<void(std::size_t)> &job) {
    if (jobs <= 1 || threads_.empty()) {
      for (std::size_t i = 0; i < jobs; ++i) job(i);
      return;
    }
    const std::lock_guard<std::mutex> turn(turn_);
    std::unique_lock<std::mutex> held(mutex_);
    job_ = &job;
    jobs_ = open_ = jobs;
    next_ = 0;
    for (std::size_t i = 1; i < jobs && i <= threads_.size(); ++i) more_.notify_one();
    while (next_ < jobs_) one(held);
    none_.wait(held, [this] { return open_ == 0; });
  }

 private:
  void work() {
    std::unique_lock<std::mutex> held(mutex_);
    for (;;) {
      more_.wait(held, [this] { return over_ || next_ < jobs_; });
      if (over_) return;
      one(held);
    }
  }

  void one(std::unique_lock<std::mutex> &held) {
    const std::size_t mine = next_++;
    held.unlock();
    (*job_)(mine);
    held.lock();
    if (--open_ == 0) none_.notify_one();
  }

  std::mutex turn_, mutex_;
  std::condition_variable more_, none_;
  std::vector<std::thread> threads_;
  const std::function<void(std::size_t)> *job_ = nullptr;
  std::size_t next_ = 0, jobs_ = 0, open_ = 0;
  bool over_ = false;
};

}  // namespace moet::storage
