// Registers moet::mxfp8_gemv and moet::mxfp8_grouped_gemv, and checks their arguments.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <iterator>

#include "kernels/extension/arguments.h"
#include "kernels/mxfp8_gemv/launch.h"

namespace moet::mxfp8_gemv {

constexpr auto kValues = ScalarType::Float8_e4m3fn;

void check_scale(const char* op, const char* name, const Tensor& scale, int64_t rows, int64_t k, bool swizzled) {
    const Argument argument{op, name, scale};
    argument.has_type({ScalarType::Byte, ScalarType::Float8_e8m0fnu}).is_contiguous();
    const int64_t columns = k / 32;
    const int64_t expected = swizzled ? (rows + 127) / 128 * 128 * ((columns + 3) / 4 * 4) : rows * columns;
    if (scale.numel() != expected)
        refuse(op, name, ": shape is ", shape_of(scale), ", ", scale.numel(), " scales; expected ", expected, ", for ", rows,
               " rows of ", columns, swizzled ? " in whole tiles of 128 by 4" : " without padding");
    argument.is_aligned(4);
}

void run_checked(const char* op, const Tensor& x, const Tensor& x_scale, const Tensor& weight, const Tensor& weight_scale,
                 const Tensor& out, bool swizzled, bool dependent, bool grouped) {
    const int64_t rank = grouped ? 3 : 2, last = rank - 1;
    const Argument x_{op, "x", x}, weight_{op, "weight", weight}, out_{op, "out", out};
    x_.has_type({kValues}).has_rank(rank).has_size_between(0, 1, kMostRows);
    const int64_t k = x.size(last), groups = grouped ? x.size(1) : 1;
    if (std::find(std::begin(kKs), std::end(kKs), k) == std::end(kKs)) {
        std::string known;
        for (const int each : kKs) known += (known.empty() ? "" : ", ") + std::to_string(each);
        refuse(op, "x: shape is ", shape_of(x), "; expected the last dimension to be one of ", known);
    }
    if (grouped) x_.has_size_between(1, 1, 1024);
    x_.is_contiguous();
    weight_.has_type({kValues}).has_rank(rank).has_size(last, k, "as x has");
    if (grouped) weight_.has_size(0, groups, "as x has groups");
    weight_.has_size_between(last - 1, kLeastColumns, INT32_MAX / 2 / groups).is_contiguous();
    const int64_t n = weight.size(last - 1);
    check_scale(op, "x_scale", x_scale, x.size(0) * groups, k, swizzled);
    check_scale(op, "weight_scale", weight_scale, n * groups, k, swizzled);
    out_.has_type({ScalarType::BFloat16}).has_rank(rank).has_size(0, x.size(0), "as x has");
    if (grouped) out_.has_size(1, groups, "as x has groups");
    out_.has_size(last, n, "as weight has rows").is_contiguous();
    x_.is_aligned(16);
    weight_.is_aligned(16);
    x_.is_on_cuda();
    weight_.is_where(x_);
    Argument{op, "x_scale", x_scale}.is_where(x_);
    Argument{op, "weight_scale", weight_scale}.is_where(x_);
    out_.is_where(x_);

    const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    const Args args{
        x.data_ptr(),
        x_scale.data_ptr(),
        weight.data_ptr(),
        weight_scale.data_ptr(),
        out.data_ptr(),
        static_cast<int>(x.size(0)),
        static_cast<int>(groups),
        static_cast<int>(n),
        static_cast<int>(k),
        swizzled,
    };
    if (const int error = run(args, dependent, current_stream(op, x))) refuse(op, "the launch failed with CUDA error ", error);
}

void plain(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor out, bool swizzled, bool dependent) {
    run_checked("mxfp8_gemv", x, x_scale, weight, weight_scale, out, swizzled, dependent, false);
}

void grouped(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor out, bool swizzled, bool dependent) {
    run_checked("mxfp8_grouped_gemv", x, x_scale, weight, weight_scale, out, swizzled, dependent, true);
}

}  // namespace moet::mxfp8_gemv

#define MOET_ARGUMENTS \
    "(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor(a!) out, bool swizzled, bool dependent=False) -> ()"

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def("mxfp8_gemv" MOET_ARGUMENTS);
    m.def("mxfp8_grouped_gemv" MOET_ARGUMENTS);
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) {
    m.impl("mxfp8_gemv", TORCH_BOX(&moet::mxfp8_gemv::plain));
    m.impl("mxfp8_grouped_gemv", TORCH_BOX(&moet::mxfp8_gemv::grouped));
}
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) {
    m.impl("mxfp8_gemv", TORCH_BOX(&moet::mxfp8_gemv::plain));
    m.impl("mxfp8_grouped_gemv", TORCH_BOX(&moet::mxfp8_gemv::grouped));
}
