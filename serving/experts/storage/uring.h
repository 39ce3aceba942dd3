// io_uring through its system calls, as much of it as reading takes.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "serving/experts/storage/batch.h"
#include "serving/experts/storage/summer.h"

namespace moet::storage {

class Uring {
 public:
  // A ring for `depth` reads in flight. Where there can be none, ok() is false and why() says so.
  explicit Uring(unsigned depth) : depth_(depth) {
    io_uring_params params{};
    fd_ = static_cast<int>(syscall(__NR_io_uring_setup, depth, &params));
    if (fd_ < 0)
      fail("io_uring_setup", errno);
    else if (!map(params))
      fail("mmap of the ring", errno);
    else if (const int error = can_read())
      fail("io_uring without IORING_OP_READ", error);
  }

  ~Uring() { close(); }
  Uring(const Uring &) = delete;
  Uring &operator=(const Uring &) = delete;

  bool ok() const { return fd_ >= 0; }
  const std::string &why() const { return why_; }

  // Reads the whole batch; returns 0, or errno of an io_uring_enter that failed for good.
  int run(int file, Batch &batch, Summer &summer) {
    std::vector<Chunk> again(batch.chunks().rbegin(), batch.chunks().rend());
    std::vector<Chunk> flying(depth_);
    std::vector<unsigned> free;
    for (unsigned i = 0; i < depth_; ++i) free.push_back(i);
    unsigned unsubmitted = 0;
    int broken = 0;
    while ((!again.empty() && !broken) || free.size() < depth_) {
      while (!broken && !again.empty() && !free.empty()) {
        const unsigned slot = free.back();
        free.pop_back();
        flying[slot] = again.back();
        again.pop_back();
        const Request &request = batch.request(flying[slot]);
        prepare(file, request.offset + flying[slot].begin, request.to + flying[slot].begin, flying[slot].length, slot);
        ++unsubmitted;
      }
      const long entered =
          broken ? usleep(100) : syscall(__NR_io_uring_enter, fd_, unsubmitted, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
      if (entered >= 0)
        unsubmitted -= static_cast<unsigned>(entered);
      else if (!broken && errno != EINTR && errno != EAGAIN && errno != EBUSY) {
        // What the kernel has not taken never flies; what it has taken may still write, and is waited for.
        broken = errno;
        for (; unsubmitted != 0; --unsubmitted) free.push_back(retract());
      } else if (!broken && errno != EINTR) {
        // The kernel lacks memory for a request, or has completions to hand over first.
        usleep(100);
      }
      reap([&](unsigned slot, std::int64_t result) {
        const Chunk rest = batch.took(flying[slot], result);
        if (rest.length != 0)
          again.push_back(rest);
        else
          summer.add(batch, rest.index);
        free.push_back(slot);
      });
    }
    summer.wait();
    return broken;
  }

 private:
  template <class T>
  T *at(void *base, unsigned offset) const {
    return reinterpret_cast<T *>(static_cast<char *>(base) + offset);
  }

  static void *map_one(int fd, std::size_t size, std::uint64_t offset) {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(offset));
  }

  bool map(const io_uring_params &params) {
    sq_size_ = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    cq_size_ = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    sqe_size_ = params.sq_entries * sizeof(io_uring_sqe);
    sq_ = map_one(fd_, sq_size_, IORING_OFF_SQ_RING);
    cq_ = map_one(fd_, cq_size_, IORING_OFF_CQ_RING);
    void *const sqes = map_one(fd_, sqe_size_, IORING_OFF_SQES);
    if (sq_ == MAP_FAILED || cq_ == MAP_FAILED || sqes == MAP_FAILED) return false;
    sqes_ = static_cast<io_uring_sqe *>(sqes);
    sq_tail_ = at<std::atomic<unsigned>>(sq_, params.sq_off.tail);
    sq_mask_ = *at<unsigned>(sq_, params.sq_off.ring_mask);
    sq_array_ = at<unsigned>(sq_, params.sq_off.array);
    cq_head_ = at<std::atomic<unsigned>>(cq_, params.cq_off.head);
    cq_tail_ = at<std::atomic<unsigned>>(cq_, params.cq_off.tail);
    cq_mask_ = *at<unsigned>(cq_, params.cq_off.ring_mask);
    cqes_ = at<io_uring_cqe>(cq_, params.cq_off.cqes);
    return true;
  }

  // 0 where IORING_OP_READ (Linux 5.6) is there and io_uring_enter is let through; else errno.
  int can_read() {
    constexpr unsigned kOps = 64;
    alignas(io_uring_probe) unsigned char space[sizeof(io_uring_probe) + kOps * sizeof(io_uring_probe_op)]{};
    auto *const probe = reinterpret_cast<io_uring_probe *>(space);
    if (syscall(__NR_io_uring_register, fd_, IORING_REGISTER_PROBE, probe, kOps) < 0) return errno;
    if (probe->last_op < IORING_OP_READ || !(probe->ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED)) return ENOSYS;
    if (syscall(__NR_io_uring_enter, fd_, 0, 0, 0, nullptr, 0) < 0) return errno;
    return 0;
  }

  void prepare(int file, std::uint64_t offset, void *to, std::uint64_t length, unsigned slot) {
    const unsigned tail = sq_tail_->load(std::memory_order_relaxed);
    io_uring_sqe &entry = sqes_[tail & sq_mask_];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = IORING_OP_READ;
    entry.fd = file;
    entry.off = offset;
    entry.addr = reinterpret_cast<std::uint64_t>(to);
    entry.len = static_cast<unsigned>(length);
    entry.user_data = slot;
    sq_array_[tail & sq_mask_] = tail & sq_mask_;
    sq_tail_->store(tail + 1, std::memory_order_release);
  }

  // Takes back the last prepared entry, and returns its slot.
  unsigned retract() {
    const unsigned tail = sq_tail_->load(std::memory_order_relaxed) - 1;
    sq_tail_->store(tail, std::memory_order_release);
    return static_cast<unsigned>(sqes_[tail & sq_mask_].user_data);
  }

  template <class Take>
  void reap(const Take &take) {
    unsigned head = cq_head_->load(std::memory_order_relaxed);
    while (head != cq_tail_->load(std::memory_order_acquire)) {
      const io_uring_cqe entry = cqes_[head & cq_mask_];
      cq_head_->store(++head, std::memory_order_release);
      take(static_cast<unsigned>(entry.user_data), entry.res);
    }
  }

  void fail(const char *what, int error) {
    why_ = std::string(what) + ": " + std::strerror(error);
    close();
  }

  void close() {
    if (sq_ != MAP_FAILED) munmap(sq_, sq_size_);
    if (cq_ != MAP_FAILED) munmap(cq_, cq_size_);
    if (sqes_ != nullptr) munmap(sqes_, sqe_size_);
    if (fd_ >= 0) ::close(fd_);
    sq_ = cq_ = MAP_FAILED;
    sqes_ = nullptr;
    fd_ = -1;
  }

  unsigned depth_;
  int fd_ = -1;
  std::string why_;
  void *sq_ = MAP_FAILED;
  void *cq_ = MAP_FAILED;
  std::size_t sq_size_ = 0, cq_size_ = 0, sqe_size_ = 0;
  io_uring_sqe *sqes_ = nullptr;
  io_uring_cqe *cqes_ = nullptr;
  std::atomic<unsigned> *sq_tail_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned *sq_array_ = nullptr;
  unsigned sq_mask_ = 0, cq_mask_ = 0;
};

}  // namespace moet::storage
