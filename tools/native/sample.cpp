#include "tools/native/sample.h"

#include <pybind11/pybind11.h>

#include <string_view>

namespace py = pybind11;

std::int64_t sum_plain(const std::uint8_t* bytes, std::int64_t n) {
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += bytes[i];
  return total;
}

PYBIND11_MODULE(sample, m) {
  m.def(
      "total",
      [](py::bytes data) {
        const std::string_view view = data;
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(view.data());
        const auto n = static_cast<std::int64_t>(view.size());
        return __builtin_cpu_supports("avx2") ? sum_wide(bytes, n) : sum_plain(bytes, n);
      },
      py::arg("data"), "The sum of the bytes.");
  m.def(
      "shared_is_wide", [] { return shared_is_wide() || shared_is_wide_in_avx2(); },
      "Whether an inline function that a source with -mavx2 has, too, was linked as that one compiled it.");
  m.def("refuse", [] { throw py::value_error("refused"); });
}
