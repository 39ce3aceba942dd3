// Python's face of the checksum and of batched reads.

#include <fcntl.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "serving/experts/storage/batch.h"
#include "serving/experts/storage/blocking.h"
#include "serving/experts/storage/crc64.h"
#include "serving/experts/storage/pool.h"
#include "serving/experts/storage/summer.h"
#include "serving/experts/storage/uring.h"

namespace py = pybind11;

namespace moet::storage {

constexpr unsigned kThreads = 64;

// (offset, bytes to ask for, bytes needed, where to)
using Wanted = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, py::buffer>;
// (offset, bytes)
using Place = std::tuple<std::uint64_t, std::uint64_t>;
// (errno or 0, bytes that came, checksum)
using Came = std::tuple<int, std::uint64_t, std::uint64_t>;

// A descriptor of its own, and the process that made it: threads and rings do not outlive a fork.
class Held {
 public:
  explicit Held(int file) : file_(fcntl(file, F_DUPFD_CLOEXEC, 0)) {
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), "dup");
  }
  ~Held() { ::close(file_); }
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;

  bool forked() const { return getpid() != owner_; }
  int file() const {
    if (forked()) throw std::runtime_error("was made before this process was forked: make one in each process");
    return file_;
  }

 private:
  int file_;
  pid_t owner_ = getpid();
};

// What Python asks for, its buffers held.
struct Asked {
  std::vector<Request> requests;
  std::vector<py::buffer_info> held;

  Asked(const std::vector<Wanted> &wanted, std::uint64_t alignment) {
    for (const auto &[offset, length, needed, to] : wanted) {
      const py::buffer_info &info = held.emplace_back(to.request(true));
      const auto address = reinterpret_cast<std::uintptr_t>(info.ptr);
      if (static_cast<std::uint64_t>(info.size) * static_cast<std::uint64_t>(info.itemsize) < length)
        throw std::invalid_argument("buffer: smaller than what is to be read");
      if (address % alignment != 0 || offset % alignment != 0 || length % alignment != 0 || needed > length)
        throw std::invalid_argument("misaligned read");
      requests.push_back({offset, length, needed, static_cast<unsigned char *>(info.ptr)});
    }
  }
};

std::vector<Came> results(const Batch &batch, std::size_t count) {
  std::vector<Came> came;
  for (std::size_t i = 0; i < count; ++i) {
    const Result result = batch.result(i);
    came.emplace_back(result.error, result.got, result.checksum);
  }
  return came;
}

void require_depth(unsigned depth) {
  if (depth < 1 || depth > 1024) throw std::invalid_argument("depth: expected 1 to 1024");
}

class Reader {
 public:
  Reader(int file, unsigned depth, std::uint64_t chunk, std::uint64_t alignment, const std::string &engine)
      : chunk_(chunk), alignment_(alignment), held_(file) {
    require_depth(depth);
    if (alignment < 1 || chunk < 1 || chunk % alignment != 0 || chunk > (1u << 30))
      throw std::invalid_argument("chunk: expected a multiple of the alignment, up to 1 GiB");
    if (engine != "io_uring" && engine != "preadv" && engine != "auto")
      throw std::invalid_argument("engine: expected auto, io_uring or preadv");
    if (engine != "preadv") {
      ring_ = std::make_unique<Uring>(depth);
      if (!ring_->ok()) {
        why_ = ring_->why();
        ring_.reset();
      }
    }
    if (!ring_ && engine == "io_uring") throw std::runtime_error(why_);
    if (ring_) summer_ = std::make_unique<Summer>(2);
    if (!ring_) pool_ = std::make_unique<Pool>(std::min(depth, kThreads));
  }

  ~Reader() {
    // Their threads are not there to be joined.
    if (held_.forked()) {
      (void)summer_.release();
      (void)pool_.release();
    }
  }

  const char *engine() const { return ring_ ? "io_uring" : "preadv"; }
  const std::string &why() const { return why_; }

  std::vector<Came> read(const std::vector<Wanted> &wanted, bool checked) {
    const int file = held_.file();
    Asked asked(wanted, alignment_);
    Batch batch(std::move(asked.requests), chunk_, alignment_, checked);
    int broken = 0;
    {
      const py::gil_scoped_release released;
      if (ring_) {
        const std::lock_guard<std::mutex> one_at_a_time(mutex_);
        broken = ring_->run(file, batch, *summer_);
      } else {
        pool_->run(batch.chunks().size(), [&](std::size_t i) { read_chunk(file, batch, i); });
      }
    }
    if (broken != 0) throw std::system_error(broken, std::generic_category(), "io_uring_enter");
    return results(batch, wanted.size());
  }

 private:
  std::uint64_t chunk_, alignment_;
  Held held_;
  std::string why_;
  std::unique_ptr<Uring> ring_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Summer> summer_;
  std::mutex mutex_;
};

// Reads through the page cache, and of a mapping of the whole file, many large pages at a time.
class Cached {
 public:
  Cached(int file, unsigned depth) : held_(file) {
    require_depth(depth);
    pool_ = std::make_unique<Pool>(std::min(depth, kThreads));
  }

  ~Cached() {
    if (held_.forked()) (void)pool_.release();
  }

  std::vector<Came> read(const py::buffer &mapping, const std::vector<Wanted> &wanted, bool checked) {
    const int file = held_.file();
    Asked asked(wanted, 1);
    const py::buffer_info mapped = mapping.request();
    for (const Request &request : asked.requests) require_inside(mapped, request.offset, request.length);
    const auto *const base = static_cast<const unsigned char *>(mapped.ptr);
    Batch batch(std::move(asked.requests), kLarge, 1, checked, true);
    {
      const py::gil_scoped_release released;
      pool_->run(batch.chunks().size(), [&](std::size_t i) {
        const Chunk &chunk = batch.chunks()[i];
        const std::uint64_t offset = batch.request(chunk).offset + chunk.begin;
        bring(file, base + offset, offset, chunk.length, false);
        read_chunk(file, batch, i);
      });
    }
    return results(batch, wanted.size());
  }

  // Of each (offset, length); a checksum is over the bytes where they are mapped.
  std::vector<Came> view(const py::buffer &mapping, const std::vector<Place> &places, bool checked) {
    const int file = held_.file();
    const py::buffer_info mapped = mapping.request();
    std::vector<Request> requests;
    for (const auto &[offset, length] : places) {
      require_inside(mapped, offset, length);
      requests.push_back({offset, length, length, static_cast<unsigned char *>(mapped.ptr) + offset});
    }
    Batch batch(std::move(requests), kLarge, 1, checked, true);
    {
      const py::gil_scoped_release released;
      pool_->run(batch.chunks().size(), [&](std::size_t i) {
        const Chunk &chunk = batch.chunks()[i];
        const Request &request = batch.request(chunk);
        if (const int error = bring(file, request.to + chunk.begin, request.offset + chunk.begin, chunk.length, true)) {
          batch.took(chunk, -error);
        } else {
          batch.took(chunk, static_cast<std::int64_t>(chunk.length));
          batch.end(i);
        }
      });
    }
    return results(batch, places.size());
  }

 private:
  static void require_inside(const py::buffer_info &mapped, std::uint64_t offset, std::uint64_t length) {
    const auto size = static_cast<std::uint64_t>(mapped.size) * static_cast<std::uint64_t>(mapped.itemsize);
    if (length > size || offset > size - length) throw std::invalid_argument("read beyond the mapping");
  }

  Held held_;
  std::unique_ptr<Pool> pool_;
};

std::uint64_t sum(const py::buffer &data, bool tables) {
  const py::buffer_info info = data.request();
  if (PyBuffer_IsContiguous(info.view(), 'C') == 0) throw py::value_error("bytes to sum up are not contiguous");
  const auto size = static_cast<std::size_t>(info.size * info.itemsize);
  const py::gil_scoped_release released;
  return tables ? crc64::by_tables(info.ptr, size) : crc64::checksum(info.ptr, size);
}

std::string without_io_uring() { return Uring(1).why(); }

}  // namespace moet::storage

PYBIND11_MODULE(direct, module) {
  using moet::storage::Cached;
  using moet::storage::Reader;
  module.doc() = "CRC-64/NVME, and batched reads through io_uring or a pool of threads with preadv.";
  module.def("crc64", [](const py::buffer &data) { return moet::storage::sum(data, false); }, py::arg("data"));
  module.def("crc64_by_tables", [](const py::buffer &data) { return moet::storage::sum(data, true); }, py::arg("data"));
  module.def("crc64_path", &moet::crc64::path, "What crc64 uses on this CPU: pclmulqdq or tables.");
  module.def("without_io_uring", &moet::storage::without_io_uring, "Why there is no io_uring here; empty: there is.");
  py::class_<Reader>(module, "Reader", "Reads of one open file, many at a time.")
      .def(py::init<int, unsigned, std::uint64_t, std::uint64_t, const std::string &>(), py::arg("file"),
           py::arg("depth"), py::arg("chunk"), py::arg("alignment"), py::arg("engine"))
      .def_property_readonly("engine", &Reader::engine)
      .def_property_readonly("why", &Reader::why)
      .def("read", &Reader::read, py::arg("wanted"), py::arg("checked"));
  py::class_<Cached>(module, "Cached", "Reads of one open file through the page cache, and of a mapping of all of it.")
      .def(py::init<int, unsigned>(), py::arg("file"), py::arg("depth"))
      .def("read", &Cached::read, py::arg("mapping"), py::arg("wanted"), py::arg("checked"))
      .def("view", &Cached::view, py::arg("mapping"), py::arg("places"), py::arg("checked"));
}
