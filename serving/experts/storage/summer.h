// Threads that sum up chunks while the ring's own thread keeps the drive busy.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "serving/experts/storage/batch.h"

namespace moet::storage {

class Summer {
 public:
  // Fewer threads, where the system gives no more: wait() helps.
  explicit Summer(unsigned threads) {
    try {
      for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error &) {
      return;
    }
  }

  ~Summer() {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      over_ = true;
    }
    more_.notify_all();
    for (std::thread &thread : threads_) thread.join();
  }

  Summer(const Summer &) = delete;
  Summer &operator=(const Summer &) = delete;

  // Chunk `index` of a batch is due; the batch outlives the next wait().
  void add(Batch &batch, std::size_t index) {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      due_.push_back({&batch, index});
      ++open_;
    }
    more_.notify_one();
  }

  // Returns when everything that was added is summed up; helps.
  void wait() {
    std::unique_lock<std::mutex> held(mutex_);
    while (!due_.empty()) one(held);
    none_.wait(held, [this] { return open_ == 0; });
  }

 private:
  struct Due {
    Batch *batch;
    std::size_t index;
  };

  void work() {
    std::unique_lock<std::mutex> held(mutex_);
    for (;;) {
      more_.wait(held, [this] { return over_ || !due_.empty(); });
      if (over_) return;
      one(held);
    }
  }

  void one(std::unique_lock<std::mutex> &held) {
    const Due due = due_.front();
    due_.pop_front();
    held.unlock();
    due.batch->end(due.index);
    held.lock();
    if (--open_ == 0) none_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable more_, none_;
  std::deque<Due> due_;
  std::vector<std::thread> threads_;
  std::size_t open_ = 0;
  bool over_ = false;
};

}  // namespace moet::storage
