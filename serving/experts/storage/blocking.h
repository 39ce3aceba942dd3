// Chunks of a batch by system calls that wait: preadv, and the page cache of a mapped file.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "serving/experts/storage/batch.h"

// Linux 5.14; older headers lack it.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace moet::storage {

// What a large page of the page cache holds, and the most that one page fault brings in.
constexpr std::uint64_t kLarge = std::uint64_t{2} << 20;

// Reads a chunk into its buffer, and sums it up.
inline void read_chunk(int file, Batch &batch, std::size_t index) {
  for (Chunk rest = batch.chunks()[index]; rest.length != 0;) {
    const Request &request = batch.request(rest);
    const iovec to{request.to + rest.begin, rest.length};
    const ssize_t got = preadv(file, &to, 1, static_cast<off_t>(request.offset + rest.begin));
    rest = batch.took(rest, got < 0 ? -errno : got);
  }
  batch.end(index);
}

// Brings `length` bytes from `offset` of a file, mapped at `at`, into the page cache; with `mapped` waits for them and
// maps them. Returns 0, or EIO where a touch of one of these pages would end the process. The mapping is MADV_HUGEPAGE.
inline int bring(int file, const unsigned char *at, std::uint64_t offset, std::uint64_t length, bool mapped) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t skew = offset % page, from = offset - skew;
  void *const first = const_cast<unsigned char *>(at) - skew;
  // Since Linux 5.18 a fault there reads all that a large page holds, into a large page where the file system has
  // them; drives that take a list of pages for each transfer read into many small ones at half their rate. Where less
  // than half of it was asked for, that would read more than it gains.
  if (2 * (skew + length) >= kLarge) madvise(first, page, MADV_POPULATE_READ);
  // A call asks ahead no more than the drive's read_ahead_kb, which is 128 if nobody set it.
  constexpr std::uint64_t kAhead = 128 << 10;
  for (std::uint64_t begin = from; begin < offset + length; begin += kAhead)
    posix_fadvise(file, static_cast<off_t>(begin), static_cast<off_t>(std::min(kAhead, offset + length - begin)),
                  POSIX_FADV_WILLNEED);
  if (!mapped || madvise(first, skew + length, MADV_POPULATE_READ) == 0) return 0;
  return errno == EFAULT || errno == EHWPOISON ? EIO : 0;
}

}  // namespace moet::storage
