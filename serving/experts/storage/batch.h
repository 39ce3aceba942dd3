// A batch of reads, cut into chunks, and what became of each.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "serving/experts/storage/crc64.h"

namespace moet::storage {

// One record to read.
struct Request {
  std::uint64_t offset = 0;   // in the file
  std::uint64_t length = 0;   // bytes to ask for; a multiple of `alignment` of the batch
  std::uint64_t needed = 0;   // bytes that must come, at most `length`; the checksum is over these
  unsigned char *to = nullptr;
};

// What became of it.
struct Result {
  int error = 0;                // errno, or 0
  std::uint64_t got = 0;        // bytes that came
  std::uint64_t checksum = 0;   // where asked for; means something only where all that is needed came
};

struct Chunk {
  std::size_t index = 0;    // in the batch
  std::size_t request = 0;
  std::uint64_t begin = 0;  // in the request
  std::uint64_t length = 0;
};

class Batch {
 public:
  // Chunks end at multiples of `chunk` in their request or, where `in_file`, in the file.
  Batch(std::vector<Request> requests, std::uint64_t chunk, std::uint64_t alignment, bool checked, bool in_file = false)
      : requests_(std::move(requests)), parts_(requests_.size()), alignment_(alignment), checked_(checked) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const std::uint64_t length = requests_[i].length, skew = in_file ? requests_[i].offset % chunk : 0;
      parts_[i].first = chunks_.size();
      for (std::uint64_t begin = 0, end; begin < length; begin = end) {
        end = std::min(length, (skew + begin) / chunk * chunk + chunk - skew);
        chunks_.push_back({chunks_.size(), i, begin, end - begin});
      }
      parts_[i].pending = chunks_.size() - parts_[i].first;
    }
    sums_.resize(chunks_.size());
  }

  const std::vector<Chunk> &chunks() const { return chunks_; }
  const Request &request(const Chunk &chunk) const { return requests_[chunk.request]; }

  // Takes what a read of `chunk` returned (bytes, or -errno). Returns what of it must be read again; where its length
  // is 0, nothing, and end() is due for the chunk.
  Chunk took(const Chunk &chunk, std::int64_t result) {
    if (result == -EINTR || result == -EAGAIN) return chunk;
    Part &part = parts_[chunk.request];
    if (result < 0) {
      part.error = static_cast<int>(-result);
      return {chunk.index, chunk.request, 0, 0};
    }
    // With O_DIRECT a read must go on at a multiple of the alignment.
    const auto came = std::min(static_cast<std::uint64_t>(result), chunk.length);
    const std::uint64_t whole = came == chunk.length ? came : came - came % alignment_;
    part.got += whole == 0 ? came : whole;
    if (whole == 0) return {chunk.index, chunk.request, 0, 0};
    return {chunk.index, chunk.request, chunk.begin + whole, chunk.length - whole};
  }

  // Sums up a chunk while other reads go on; whoever brings a request's last puts the sums together.
  void end(std::size_t index) {
    const Chunk &chunk = chunks_[index];
    const Request &request = requests_[chunk.request];
    Part &part = parts_[chunk.request];
    if (checked_) sums_[index] = crc64::checksum(request.to + chunk.begin, needed(chunk));
    if (part.pending.fetch_sub(1) != 1 || !checked_) return;
    part.sum = sums_[part.first];
    for (std::size_t i = part.first + 1; i < chunks_.size() && chunks_[i].request == chunk.request; ++i)
      part.sum = crc64::joined(part.sum, sums_[i], needed(chunks_[i]));
  }

  Result result(std::size_t request) const {
    const Part &part = parts_[request];
    return {part.error, part.got, part.sum};
  }

 private:
  struct Part {
    std::atomic<std::uint64_t> pending{0}, got{0};
    std::atomic<int> error{0};
    std::size_t first = 0;
    std::uint64_t sum = 0;
  };

  // How many of a chunk's bytes are the record's.
  std::uint64_t needed(const Chunk &chunk) const {
    const std::uint64_t all = requests_[chunk.request].needed;
    return all <= chunk.begin ? 0 : std::min(chunk.length, all - chunk.begin);
  }

  std::vector<Request> requests_;
  std::vector<Part> parts_;
  std::vector<Chunk> chunks_;
  std::vector<std::uint64_t> sums_;
  std::uint64_t alignment_;
  bool checked_;
};

}  // namespace moet::storage
