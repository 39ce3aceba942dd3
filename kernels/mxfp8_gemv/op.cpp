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

// The packed scales of x (kernels/common/scale_layouts.py): a word is four scales of a row; the words of all rows for one k
// lie beside each other, and how far those of the next k and group are is x_scale's to say.
void check_packed(const char* op, const Tensor& x, const Tensor& x_scale) {
    const Argument argument{op, "x_scale", x_scale};
    const int64_t rows = x.size(0);
    Argument{op, "x", x}.has_size_multiple(2, 128);
    argument.has_type({ScalarType::Int}).has_rank(3).has_size(0, rows, "as x has").has_size(1, x.size(1), "as x has groups");
    argument.has_size(2, x.size(2) / 128, "a word for 128 columns of x");
    const bool beside = x_scale.stride(0) == 1 || rows == 1;
    if (!beside || x_scale.stride(2) < rows || x_scale.stride(1) < rows)
        refuse(op, "x_scale: strides are ", strides_of(x_scale), " for shape ", shape_of(x_scale),
               "; expected dimension 0's to be 1, and the others' to be at least ", rows);
    argument.is_aligned(4);
}

// How an operator was called, but for its tensors.
struct Call {
    const char* op;
    bool swizzled, packed, dependent, grouped;
};

void run_checked(const Call& call, const Tensor& x, const Tensor& x_scale, const Tensor& weight, const Tensor& weight_scale,
                 const Tensor& out) {
    const char* const op = call.op;
    const int64_t rank = call.grouped ? 3 : 2, last = rank - 1;
    const Argument x_{op, "x", x}, weight_{op, "weight", weight}, out_{op, "out", out};
    x_.has_type({kValues}).has_rank(rank).has_size_between(0, 1, kMostRows);
    const int64_t k = x.size(last), rows = x.size(0), groups = call.grouped ? x.size(1) : 1;
    if (std::find(std::begin(kKs), std::end(kKs), k) == std::end(kKs)) {
        std::string known;
        for (const int each : kKs) known += (known.empty() ? "" : ", ") + std::to_string(each);
        refuse(op, "x: shape is ", shape_of(x), "; expected the last dimension to be one of ", known);
    }
    if (call.grouped) x_.has_size_between(1, 1, 1024);
    x_.has_rows(16);
    weight_.has_type({kValues}).has_rank(rank).has_size(last, k, "as x has");
    if (call.grouped) weight_.has_size(0, groups, "as x has groups");
    weight_.has_size_between(last - 1, kLeastColumns, INT32_MAX / 2 / groups).is_contiguous();
    const int64_t n = weight.size(last - 1);
    if (call.packed)
        check_packed(op, x, x_scale);
    else
        check_scale(op, "x_scale", x_scale, rows * groups, k, call.swizzled);
    check_scale(op, "weight_scale", weight_scale, n * groups, k, call.swizzled);
    out_.has_type({ScalarType::BFloat16}).has_rank(rank).has_size(0, rows, "as x has");
    if (call.grouped) out_.has_size(1, groups, "as x has groups");
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
        .x = x.data_ptr(),
        .x_scale = x_scale.data_ptr(),
        .w = weight.data_ptr(),
        .w_scale = weight_scale.data_ptr(),
        .y = out.data_ptr(),
        .x_row = x.stride(0),
        .x_group = call.grouped ? x.stride(1) : 0,
        .x_scale_row = call.packed ? 4 : groups * (k / 32),
        .x_scale_group = call.packed ? 4 * x_scale.stride(1) : k / 32,
        .x_scale_chunk = call.packed ? 4 * x_scale.stride(2) : 4,
        .M = static_cast<int>(rows),
        .G = static_cast<int>(groups),
        .N = static_cast<int>(n),
        .K = static_cast<int>(k),
        .x_swizzled = call.swizzled && !call.packed,
        .w_swizzled = call.swizzled,
    };
    if (const int error = run(args, call.dependent, current_stream(op, x))) refuse(op, "the launch failed with CUDA error ", error);
}

void plain(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor out, bool swizzled, bool dependent) {
    run_checked({"mxfp8_gemv", swizzled, false, dependent, false}, x, x_scale, weight, weight_scale, out);
}

void grouped(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor out, bool swizzled, bool packed,
             bool dependent) {
    run_checked({"mxfp8_grouped_gemv", swizzled, packed, dependent, true}, x, x_scale, weight, weight_scale, out);
}

}  // namespace moet::mxfp8_gemv

#define MOET_TENSORS "(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor(a!) out, bool swizzled, "

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def("mxfp8_gemv" MOET_TENSORS "bool dependent=False) -> ()");
    m.def("mxfp8_grouped_gemv" MOET_TENSORS "bool packed=False, bool dependent=False) -> ()");
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
