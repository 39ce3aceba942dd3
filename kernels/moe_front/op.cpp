// Registers moet::moe_front, and checks its arguments.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <optional>

#include "kernels/extension/arguments.h"
#include "kernels/moe_front/launch.h"

namespace moet::moe_front {

constexpr const char* kName = "moe_front";

using MaybeTensor = std::optional<Tensor>;

void check_is_one_of(const char* name, int64_t value, int64_t low, int64_t high) {
    if (value != low && value != high) refuse(kName, name, ": is ", value, "; expected ", low, " or ", high);
}

void check_inputs(const Argument& logits, const Argument& bias, const Argument& x, int64_t M, int64_t E) {
    logits.has_size_between(0, 1, kMostTokens).has_size_between(1, kUnitExperts, kMostExperts);
    logits.has_size_multiple(1, kUnitExperts).is_contiguous();
    bias.has_type({ScalarType::Float}).has_rank(1).has_size(0, E, "as logits has experts").is_contiguous();
    x.has_type({ScalarType::BFloat16}).has_rank(2).has_size(0, M, "as logits has").has_size_between(1, kUnitK, kMostK);
    x.has_size_multiple(1, kUnitK).is_contiguous().is_aligned(16);
}

// Of images: both tensors come together, or neither does.
void check_image(const MaybeTensor& token_ids, const MaybeTensor& image_bias, int64_t M, int64_t E,
                 int64_t image_first) {
    if (token_ids && !image_bias) refuse(kName, "image_bias: is absent; expected one, as there are token_ids");
    if (image_bias && !token_ids) refuse(kName, "token_ids: are absent; expected some, as there is an image_bias");
    if (image_first < 0) refuse(kName, "image_first: is ", image_first, "; expected a token id, or 0");
    if (image_first && !token_ids)
        refuse(kName, "image_first: is ", image_first, "; expected 0, as there are no token_ids");
    if (!token_ids) return;
    const Argument ids{kName, "token_ids", *token_ids}, bias{kName, "image_bias", *image_bias};
    ids.has_type({ScalarType::Int, ScalarType::Long}).has_rank(1).has_size(0, M, "as logits has").is_contiguous();
    bias.has_type({ScalarType::Float}).has_rank(1).has_size(0, E, "as logits has experts").is_contiguous();
}

int64_t rows(int64_t M, int64_t E, int64_t alignment) {
    const int64_t pairs = M * kTop, most = pairs + std::min(pairs, E) * (alignment - 1);
    return (most + alignment - 1) / alignment * alignment;
}

void check_scale(const Tensor& a_scale, int64_t R, int64_t words) {
    const Argument scale{kName, "a_scale", a_scale};
    scale.has_type({ScalarType::Int}).has_rank(2).has_size(0, R, "as a has").has_size(1, words, "words of four scales");
    if (a_scale.stride(0) != 1 || (words > 1 && a_scale.stride(1) != R))
        refuse(kName, "a_scale: strides are ", strides_of(a_scale), "; expected [1, ", R, "]");
}

void op(Tensor logits, Tensor bias, Tensor x, MaybeTensor is_padding, MaybeTensor token_ids, MaybeTensor image_bias,
        Tensor a, Tensor a_scale, Tensor m_indices, Tensor inv_perm, Tensor topk_weights, Tensor topk_ids,
        int64_t alignment, int64_t group, double scaling_factor, int64_t image_first, bool dependent) {
    const Argument logits_{kName, "logits", logits}, bias_{kName, "bias", bias}, x_{kName, "x", x}, a_{kName, "a", a};
    const Argument m_indices_{kName, "m_indices", m_indices}, inv_perm_{kName, "inv_perm", inv_perm};
    const Argument weights_{kName, "topk_weights", topk_weights}, ids_{kName, "topk_ids", topk_ids};
    check_is_one_of("alignment", alignment, 64, 128);
    check_is_one_of("group", group, 32, 128);
    logits_.has_type({ScalarType::Float}).has_rank(2);
    const int64_t M = logits.size(0), E = logits.size(1), R = rows(M, E, alignment);
    check_inputs(logits_, bias_, x_, M, E);
    const int64_t K = x.size(1);
    if (is_padding) {
        const Argument padding{kName, "is_padding", *is_padding};
        padding.has_type({ScalarType::Bool}).has_rank(1).has_size(0, M, "as logits has").is_contiguous();
    }
    check_image(token_ids, image_bias, M, E, image_first);
    a_.has_type({ScalarType::Float8_e4m3fn}).has_rank(2).has_size(0, R, "for these tokens, experts and alignment");
    a_.has_size(1, K, "as x has").is_contiguous().is_aligned(16);
    check_scale(a_scale, R, K / (4 * group));
    m_indices_.has_type({ScalarType::Int}).has_rank(1).has_size(0, R, "as a has").is_contiguous().is_aligned(16);
    inv_perm_.has_type({ScalarType::Int});
    weights_.has_type({ScalarType::Float});
    ids_.has_type({ScalarType::Int});
    for (const Argument* of_pairs : {&inv_perm_, &weights_, &ids_}) {
        of_pairs->has_rank(2).has_size(0, M, "as logits has").has_size(1, kTop, "experts a token");
        of_pairs->is_contiguous();
    }

    logits_.is_on_cuda();
    for (const Argument* other : {&bias_, &x_, &a_, &m_indices_, &inv_perm_, &weights_, &ids_})
        other->is_where(logits_);
    Argument{kName, "a_scale", a_scale}.is_where(logits_);
    if (is_padding) Argument{kName, "is_padding", *is_padding}.is_where(logits_);
    if (token_ids) Argument{kName, "token_ids", *token_ids}.is_where(logits_);
    if (image_bias) Argument{kName, "image_bias", *image_bias}.is_where(logits_);

    const torch::stable::accelerator::DeviceGuard guard(logits.get_device_index());
    Args args{};
    args.logits = static_cast<const float*>(logits.data_ptr());
    args.bias = static_cast<const float*>(bias.data_ptr());
    args.x = x.data_ptr();
    args.is_padding = is_padding ? static_cast<const bool*>(is_padding->data_ptr()) : nullptr;
    args.token_ids = token_ids ? token_ids->data_ptr() : nullptr;
    args.image_bias = image_bias ? static_cast<const float*>(image_bias->data_ptr()) : nullptr;
    args.a = a.data_ptr();
    args.a_scale = static_cast<uint32_t*>(a_scale.data_ptr());
    args.m_indices = static_cast<int32_t*>(m_indices.data_ptr());
    args.inv_perm = static_cast<int32_t*>(inv_perm.data_ptr());
    args.topk_weights = static_cast<float*>(topk_weights.data_ptr());
    args.topk_ids = static_cast<int32_t*>(topk_ids.data_ptr());
    args.image_first = image_first;
    args.scaling_factor = static_cast<float>(scaling_factor);
    args.M = static_cast<int>(M);
    args.E = static_cast<int>(E);
    args.K = static_cast<int>(K);
    args.R = static_cast<int>(R);
    args.alignment = static_cast<int>(alignment);
    args.ids_are_long = token_ids && token_ids->scalar_type() == ScalarType::Long;
    if (const int error = run(args, static_cast<int>(group), dependent, current_stream(kName, logits)))
        refuse(kName, "the launch failed with CUDA error ", error);
}

}  // namespace moet::moe_front

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def(
        "moe_front(Tensor logits, Tensor bias, Tensor x, Tensor? is_padding, Tensor? token_ids, Tensor? image_bias, "
        "Tensor(a!) a, Tensor(b!) a_scale, Tensor(c!) m_indices, Tensor(d!) inv_perm, Tensor(e!) topk_weights, "
        "Tensor(f!) topk_ids, int alignment, int group, float scaling_factor, int image_first, bool dependent=False) "
        "-> ()");
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) { m.impl("moe_front", TORCH_BOX(&moet::moe_front::op)); }
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) { m.impl("moe_front", TORCH_BOX(&moet::moe_front::op)); }
