// tools.experts.native.codec: the quantizer for Python. The lock of the interpreter is free while it works.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "tools/experts/native/codec.h"
#include "tools/experts/native/loops.h"

namespace py = pybind11;

namespace {

using moet::experts::Counts;
using moet::experts::Delta;
using moet::experts::Loops;
using moet::experts::Scheme;
using moet::experts::ZeroMode;

using Bytes = py::array_t<uint8_t, py::array::c_style>;

template <typename Kind, typename... Name>
Kind kind_of(const std::string& what, const std::string& name, Name... names) {
  int at = 0;
  for (const char* known : {names...}) {
    if (name == known) return static_cast<Kind>(at);
    ++at;
  }
  throw std::invalid_argument("no " + what + " " + name);
}

const Loops& loops_of(const std::string& isa) {
  const Loops* avx2 = moet::experts::avx2_loops();
  if (isa == "portable" || (isa.empty() && avx2 == nullptr)) return moet::experts::portable_loops();
  if ((isa == "avx2" || isa.empty()) && avx2 != nullptr) return *avx2;
  throw std::invalid_argument("no loops for " + isa + " here");
}

void expect(const char* what, int64_t found, int64_t expected) {
  if (found != expected)
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(found) + " elements, expected " +
                                std::to_string(expected));
}

py::list quantize(const std::string& scheme, const Bytes& codes, const py::array& scales, float scale_2, int64_t rows,
                  int64_t columns, const std::string& zero_mode, Bytes code_plane, Bytes scale_plane,
                  const std::string& delta, Bytes delta_plane, const std::string& isa) {
  if (rows <= 0 || rows % 16 != 0 || columns <= 0 || columns % 64 != 0)
    throw std::invalid_argument("a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) +
                                ": planes take rows by 16 and columns by 64");
  const auto loops = &loops_of(isa);
  moet::experts::Source source{};
  source.scheme = kind_of<Scheme>("scheme", scheme, "mxfp4", "nvfp4", "fp8_block");
  const auto mode = kind_of<ZeroMode>("zero mode", zero_mode, "auto", "sign", "alt");
  moet::experts::Planes planes{};
  planes.kind = kind_of<Delta>("delta", delta, "", "fp4", "quintal");
  const bool fp8 = source.scheme == Scheme::kFp8Block;
  const int64_t weights = rows * columns;
  expect("codes", codes.size(), fp8 ? weights : weights / 2);
  if (fp8) {
    if (!py::isinstance<py::array_t<float, py::array::c_style>>(scales))
      throw std::invalid_argument("scales: expected float32 in C order");
    expect("scales", scales.size(), (rows + 127) / 128 * ((columns + 127) / 128));
    source.block_scales = static_cast<const float*>(scales.data());
  } else {
    if (!py::isinstance<Bytes>(scales)) throw std::invalid_argument("scales: expected uint8 in C order");
    expect("scales", scales.size(), weights / (source.scheme == Scheme::kMxfp4 ? 32 : 16));
    source.scales = static_cast<const uint8_t*>(scales.data());
  }
  expect("plane of codes", code_plane.size(), weights / 4);
  expect("plane of scales", scale_plane.size(), weights / 32);
  expect("delta", delta_plane.size(),
         planes.kind == Delta::kFp4 ? weights / 2 : planes.kind == Delta::kQuintal ? weights * 5 / 16 : 0);
  source.codes = codes.data();
  source.scale_2 = scale_2;
  source.rows = rows;
  source.columns = columns;
  planes.codes = code_plane.mutable_data();
  planes.scales = scale_plane.mutable_data();
  planes.delta = planes.kind == Delta::kNone ? nullptr : delta_plane.mutable_data();
  Counts counts;
  {
    const py::gil_scoped_release free;
    moet::experts::quantize(*loops, source, mode, planes, counts);
  }
  py::list numbers;
  for (const int64_t count : counts.histogram) numbers.append(count);
  for (const int64_t count : {counts.positive_zeros, counts.negative_zeros, counts.alternated, counts.zero_blocks,
                              counts.saturated, counts.clamped})
    numbers.append(count);
  return numbers;
}

}  // namespace

PYBIND11_MODULE(codec, module) {
  module.doc() = "The 2-bit quantizer in machine code.";
  // Arguments that would have to be copied are refused: what is written must be the caller's memory.
  module.def("quantize", &quantize,
             "Quantizes a matrix into planes that are given, and returns its counts. Raises ValueError.",
             py::arg("scheme"), py::arg("codes").noconvert(), py::arg("scales").noconvert(), py::arg("scale_2"),
             py::arg("rows"), py::arg("columns"), py::arg("zero_mode"), py::arg("code_plane").noconvert(),
             py::arg("scale_plane").noconvert(), py::arg("delta"), py::arg("delta_plane").noconvert(),
             py::arg("isa") = "");
  module.def("isas", [] {
    py::list names;
    names.append("portable");
    if (moet::experts::avx2_loops() != nullptr) names.append("avx2");
    return names;
  }, "The instruction sets that this CPU has loops for; the last one is used where none is asked for.");
}
