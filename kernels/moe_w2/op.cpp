// Registers moet::moe_w2, and checks its arguments.
#include <torch/csrc/stable/library.h>

#include <optional>
#include <string>

#include "kernels/extension/arguments.h"
#include "kernels/moe_w2/launch.h"

namespace moet::moe_w2 {

constexpr const char* kName = "moe_w2";

using MaybeTensor = std::optional<Tensor>;

// [slots, parts, bytes of a matrix]; slots and parts may lie apart.
void check_slots(const std::string& name, const Tensor& tensor, const Tensor& first, const char* first_name, int64_t bytes,
                 std::initializer_list<ScalarType> types) {
    const Argument argument{kName, name.c_str(), tensor};
    const std::string why = std::string("as ") + first_name + " has";
    argument.has_type(types).has_rank(3).has_size(0, first.size(0), why.c_str()).has_size(1, first.size(1), why.c_str());
    argument.has_size(2, bytes, "the bytes of N by K").has_rows(16).is_aligned(16);
}

void check_table(const std::string& name, const Tensor& table, int64_t experts) {
    const Argument argument{kName, name.c_str(), table};
    argument.has_type({ScalarType::Int}).has_rank(1);
    if (experts) argument.has_size(0, experts, "as table has experts");
    argument.has_size_between(0, 1, 1 << 20).is_contiguous();
}

struct Shape {
    int64_t M, top, N, K, parts;
};

Shape check_shapes(const Tensor& x, const Tensor& x_scale, const Tensor& ids, const Tensor& planes, const Tensor& out) {
    const Argument x_{kName, "x", x}, x_scale_{kName, "x_scale", x_scale}, ids_{kName, "topk_ids", ids};
    const Argument planes_{kName, "planes", planes}, out_{kName, "out", out};
    ids_.has_type({ScalarType::Int}).has_rank(2).has_size_between(0, 1, kMostRows).has_size_between(1, 1, kMostTop);
    ids_.is_contiguous();
    const int64_t M = ids.size(0), top = ids.size(1), rank = x.dim() == 3 ? 3 : 2;
    x_.has_type({ScalarType::Float8_e4m3fn}).has_rank(rank).has_size(0, M, "as topk_ids has");
    if (rank == 3) x_.has_size(1, top, "as topk_ids has");
    x_.has_size_between(rank - 1, kUnitK, kMostK).has_size_multiple(rank - 1, kUnitK).has_rows(16).is_aligned(16);
    const int64_t K = x.size(rank - 1);
    x_scale_.has_type({ScalarType::Byte, ScalarType::Float8_e8m0fnu}).has_rank(rank).has_size(0, M, "as x has");
    if (rank == 3) x_scale_.has_size(1, top, "as x has");
    x_scale_.has_size(rank - 1, K / 32, "a scale for 32 columns of x").has_rows(1);
    planes_.has_type({ScalarType::Byte}).has_rank(3).has_size_between(0, 1, INT32_MAX).has_size_between(1, 1, kMostParts);
    const int64_t parts = planes.size(1);
    out_.has_type({ScalarType::BFloat16, ScalarType::Float}).has_rank(3).has_size(0, M, "as topk_ids has");
    out_.has_size(1, top, "as topk_ids has").has_size_between(2, kUnitN * parts, 1 << 20);
    out_.has_size_multiple(2, kUnitN * parts).is_contiguous();
    return {M, top, out.size(2) / parts, K, parts};
}

Weights weights_of(const Tensor& planes, const MaybeTensor& scales, const Tensor& table) {
    return {
        .planes = planes.data_ptr(),
        .scales = scales ? scales->data_ptr() : nullptr,
        .table = static_cast<const int32_t*>(table.data_ptr()),
        .plane_slot = planes.stride(0),
        .plane_part = planes.stride(1),
        .scale_slot = scales ? scales->stride(0) : 0,
        .scale_part = scales ? scales->stride(1) : 0,
        .slots = static_cast<int>(planes.size(0)),
    };
}

void op(Tensor x, Tensor x_scale, Tensor topk_ids, Tensor planes, Tensor scales, Tensor table, MaybeTensor delta_planes,
        MaybeTensor delta_scales, MaybeTensor delta_table, Tensor out, Tensor missing, bool dependent, bool routed) {
    const Shape shape = check_shapes(x, x_scale, topk_ids, planes, out);
    const int64_t weights = shape.N * shape.K;
    const std::initializer_list<ScalarType> scale_types = {ScalarType::Byte, ScalarType::Float8_e8m0fnu};
    check_slots("planes", planes, planes, "planes", weights / 4, {ScalarType::Byte});
    check_slots("scales", scales, planes, "planes", weights / 32, scale_types);
    check_table("table", table, 0);
    if (delta_planes.has_value() != delta_table.has_value())
        refuse(kName, delta_planes ? "delta_table" : "delta_planes", ": is absent; expected one, as there ",
               delta_planes ? "are delta_planes" : "is a delta_table");
    if (delta_scales && !delta_planes) refuse(kName, "delta_planes: are absent; expected some, as there are delta_scales");
    if (delta_planes) {
        const Argument delta{kName, "delta_planes", *delta_planes};
        delta.has_type({ScalarType::Byte}).has_rank(3).has_size_between(0, 1, INT32_MAX);
        delta.has_size(1, shape.parts, "as planes has");
        check_slots("delta_planes", *delta_planes, *delta_planes, "delta_planes", weights / 2, {ScalarType::Byte});
        if (delta_scales)
            check_slots("delta_scales", *delta_scales, *delta_planes, "delta_planes", weights / 32, scale_types);
        check_table("delta_table", *delta_table, table.size(0));
    }
    const Argument missing_{kName, "missing", missing}, x_{kName, "x", x};
    missing_.has_type({ScalarType::Int}).has_rank(1).has_size(0, 1, "a counter");
    x_.is_on_cuda();
    const auto is_there = [&](const char* name, const Tensor& tensor) { Argument{kName, name, tensor}.is_where(x_); };
    is_there("x_scale", x_scale), is_there("topk_ids", topk_ids), is_there("planes", planes), is_there("scales", scales);
    is_there("table", table), is_there("out", out), is_there("missing", missing);
    if (delta_planes) is_there("delta_planes", *delta_planes), is_there("delta_table", *delta_table);
    if (delta_scales) is_there("delta_scales", *delta_scales);

    const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    const bool by_pair = x.dim() == 3;
    const Args args{
        .x = x.data_ptr(),
        .x_scale = x_scale.data_ptr(),
        .x_row = x.stride(0),
        .x_pair = by_pair ? x.stride(1) : 0,
        .x_scale_row = x_scale.stride(0),
        .x_scale_pair = by_pair ? x_scale.stride(1) : 0,
        .ids = static_cast<const int32_t*>(topk_ids.data_ptr()),
        .base = weights_of(planes, scales, table),
        .delta = delta_planes ? weights_of(*delta_planes, delta_scales, *delta_table) : Weights{},
        .out = out.data_ptr(),
        .missing = static_cast<int32_t*>(missing.data_ptr()),
        .M = static_cast<int>(shape.M),
        .top = static_cast<int>(shape.top),
        .E = static_cast<int>(table.size(0)),
        .N = static_cast<int>(shape.N),
        .K = static_cast<int>(shape.K),
        .parts = static_cast<int>(shape.parts),
        .out_is_float = out.scalar_type() == ScalarType::Float,
        .delta_has_scales = delta_scales.has_value(),
        .routed = routed,
    };
    if (const int error = run(args, dependent, current_stream(kName, x)))
        refuse(kName, "the launch failed with CUDA error ", error);
}

}  // namespace moet::moe_w2

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def(
        "moe_w2(Tensor x, Tensor x_scale, Tensor topk_ids, Tensor planes, Tensor scales, Tensor table, "
        "Tensor? delta_planes, Tensor? delta_scales, Tensor? delta_table, Tensor(a!) out, Tensor(b!) missing, "
        "bool dependent=False, bool routed=False) -> ()");
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) { m.impl("moe_w2", TORCH_BOX(&moet::moe_w2::op)); }
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) { m.impl("moe_w2", TORCH_BOX(&moet::moe_w2::op)); }
