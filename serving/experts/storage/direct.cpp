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
#include "serving/experts/storage/crc64.h"
#include "serving/experts/storage/pool.h"
#include "serving/experts/storage/summer.h"
#include "serving/experts/storage/uring.h"

namespace py = pybind11;

namespace moet::storage {

// (offset, bytes to ask for, bytes needed, where to)
using Wanted = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, py::buffer>;
// (errno or 0, bytes that came, checksum)
using Came = std::tuple<int, std::uint64_t, std::uint64_t>;

class Reader {
 public:
  Reader(int file, unsigned depth, std::uint64_t chunk, std::uint64_t alignment, const std::string &engine)
      : chunk_(chunk), alignment_(alignment) {
    if (depth < 1 || depth > 1024) throw std::invalid_argument("depth: expected 1 to 1024");
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
    if (!ring_) pool_ = std::make_unique<Pool>(std::min(depth, 64u));
    file_ = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), "dup");
  }

  ~Reader() {
    if (file_ >= 0) ::close(file_);
  }

  const char *engine() const { return ring_ ? "io_uring" : "preadv"; }
  const std::string &why() const { return why_; }

  std::vector<Came> read(const std::vector<Wanted> &wanted, bool checked) {
    std::vector<Request> requests;
    std::vector<py::buffer_info> held;
    for (const auto &[offset, length, needed, to] : wanted) {
      held.push_back(to.request(true));
      const py::buffer_info &info = held.back();
      const auto address = reinterpret_cast<std::uintptr_t>(info.ptr);
      if (static_cast<std::uint64_t>(info.size) * static_cast<std::uint64_t>(info.itemsize) < length)
        throw std::invalid_argument("buffer: smaller than what is to be read");
      if (address % alignment_ != 0 || offset % alignment_ != 0 || length % alignment_ != 0 || needed > length)
        throw std::invalid_argument("misaligned read");
      requests.push_back({offset, length, needed, static_cast<unsigned char *>(info.ptr)});
    }
    Batch batch(std::move(requests), chunk_, alignment_, checked);
    int broken = 0;
    {
      const py::gil_scoped_release released;
      const std::lock_guard<std::mutex> one_at_a_time(mutex_);
      if (ring_)
        broken = ring_->run(file_, batch, *summer_);
      else
        pool_->run(file_, batch);
    }
    if (broken != 0) throw std::system_error(broken, std::generic_category(), "io_uring_enter");
    std::vector<Came> came;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Result result = batch.result(i);
      came.emplace_back(result.error, result.got, result.checksum);
    }
    return came;
  }

 private:
  std::uint64_t chunk_, alignment_;
  int file_ = -1;
  std::string why_;
  std::unique_ptr<Uring> ring_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Summer> summer_;
  std::mutex mutex_;
};

std::uint64_t sum(const py::buffer &data, bool tables) {
  const py::buffer_info info = data.request();
  const auto size = static_cast<std::size_t>(info.size * info.itemsize);
  const py::gil_scoped_release released;
  return tables ? crc64::by_tables(info.ptr, size) : crc64::checksum(info.ptr, size);
}

std::string without_io_uring() { return Uring(1).why(); }

}  // namespace moet::storage

PYBIND11_MODULE(direct, module) {
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
}
