// The same reads by threads with preadv, where there is no io_uring.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "serving/experts/storage/batch.h"

namespace moet::storage {

class Pool {
 public:
  explicit Pool(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~Pool() {
    {
      const std::lock_guard<std::mutex> held(mutex_);
      over_ = true;
    }
    begin_.notify_all();
    for (std::thread &thread : threads_) thread.join();
  }

  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  // Reads the whole batch. One batch at a time.
  void run(int file, Batch &batch) {
    std::unique_lock<std::mutex> held(mutex_);
    batch_ = &batch;
    file_ = file;
    next_ = 0;
    busy_ = threads_.size();
    ++round_;
    begin_.notify_all();
    end_.wait(held, [this] { return busy_ == 0; });
    batch_ = nullptr;
  }

 private:
  void work() {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> held(mutex_);
    for (;;) {
      begin_.wait(held, [&] { return over_ || round_ != seen; });
      if (over_) return;
      seen = round_;
      held.unlock();
      read_all();
      held.lock();
      if (--busy_ == 0) end_.notify_one();
    }
  }

  void read_all() {
    const std::vector<Chunk> &chunks = batch_->chunks();
    for (std::size_t i = next_++; i < chunks.size(); i = next_++) {
      for (Chunk rest = chunks[i]; rest.length != 0;) {
        const Request &request = batch_->request(rest);
        const iovec to{request.to + rest.begin, rest.length};
        const ssize_t got = preadv(file_, &to, 1, static_cast<off_t>(request.offset + rest.begin));
        rest = batch_->took(rest, got < 0 ? -errno : got);
      }
      batch_->end(i);
    }
  }

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  std::vector<std::thread> threads_;
  Batch *batch_ = nullptr;
  int file_ = -1;
  std::atomic<std::size_t> next_{0};
  std::size_t busy_ = 0;
  std::uint64_t round_ = 0;
  bool over_ = false;
};

}  // namespace moet::storage
