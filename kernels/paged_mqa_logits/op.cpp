// Registers moet::paged_mqa_logits and moet::paged_mqa_logits_metadata, and checks their arguments.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include "kernels/extension/arguments.h"
#include "kernels/paged_mqa_logits/launch.h"

namespace moet::paged_mqa_logits {

// Requests times next_n times columns is a 64-bit matter; these are not.
constexpr int64_t kMostRequests = 1 << 20, kMostColumns = 1 << 28, kMostPages = 1 << 28;

std::string page_sizes() {
    std::string text;
    for (const int each : kPageSizes) text += (text.empty() ? "" : ", ") + std::to_string(each);
    return text;
}

bool is_page_size(int64_t size) {
    return std::find(std::begin(kPageSizes), std::end(kPageSizes), size) != std::end(kPageSizes);
}

// Checks context_lens [requests], [requests, 1] or [requests, next_n]; returns how many a request has.
int64_t check_contexts(const Argument& argument, const Tensor& contexts) {
    argument.has_type({ScalarType::Int});
    if (contexts.dim() != 1) argument.has_rank(2).has_size_between(1, 1, kMostNextN);
    argument.has_size_between(0, 1, kMostRequests).is_contiguous();
    return contexts.dim() == 1 ? 1 : contexts.size(1);
}

// Checks [slots + 1, 2]; returns slots.
int64_t check_schedule(const Argument& argument, const Tensor& schedule) {
    argument.has_type({ScalarType::Int}).has_rank(2).has_size_between(0, 2, kMostSlots + 1).has_size(1, 2, "request and unit");
    argument.is_contiguous().is_aligned(8);
    return schedule.size(0) - 1;
}

void logits(Tensor q, std::optional<Tensor> q_scale, Tensor kv_cache, Tensor weights, Tensor context_lens, Tensor block_tables,
            Tensor schedule_metadata, int64_t max_model_len, Tensor out, bool dependent) {
    const char* const op = "paged_mqa_logits";
    const bool mxfp4 = q_scale.has_value();
    const int64_t row_bytes = mxfp4 ? kHeadDim / 2 : kHeadDim, key_bytes = row_bytes + 4;
    const Argument q_{op, "q", q}, cache_{op, "kv_cache", kv_cache}, weights_{op, "weights", weights};
    const Argument contexts_{op, "context_lens", context_lens}, tables_{op, "block_tables", block_tables};
    const Argument schedule_{op, "schedule_metadata", schedule_metadata}, out_{op, "out", out};
    if (mxfp4)
        q_.has_type({ScalarType::Char, ScalarType::Byte});
    else
        q_.has_type({ScalarType::Float8_e4m3fn});
    q_.has_rank(4).has_size_between(0, 1, kMostRequests).has_size_between(1, 1, kMostNextN);
    q_.has_size(2, kHeads, "heads");
    q_.has_size(3, row_bytes, mxfp4 ? "pairs of E2M1, as q_scale is there" : "as q_scale is absent");
    q_.is_contiguous();
    const int64_t requests = q.size(0), next_n = q.size(1), rows = requests * next_n;
    if (mxfp4) {
        const Argument scale_{op, "q_scale", *q_scale};
        scale_.has_type({ScalarType::Int}).has_rank(3).has_size(0, requests, "as q has requests");
        scale_.has_size(1, next_n, "as q has").has_size(2, kHeads, "heads").is_contiguous();
    }
    cache_.has_type({ScalarType::Byte}).has_rank(4).has_size_between(0, 1, kMostPages);
    if (!is_page_size(kv_cache.size(1)))
        refuse(op, "kv_cache: shape is ", shape_of(kv_cache), "; expected dimension 1 to be one of ", page_sizes());
    cache_.has_size(2, 1, "as keys have one head").has_size(3, key_bytes, mxfp4 ? "of E2M1, as q is" : "of E4M3, as q is");
    const int64_t page_size = kv_cache.size(1), page_bytes = page_size * key_bytes;
    if (kv_cache.stride(3) != 1 || kv_cache.stride(1) != key_bytes ||
        (kv_cache.size(0) > 1 && (kv_cache.stride(0) < page_bytes || kv_cache.stride(0) % 16)))
        refuse(op, "kv_cache: strides are ", strides_of(kv_cache), "; expected pages of ", page_bytes,
               " bytes without gaps, a multiple of 16 bytes apart");
    weights_.has_type({ScalarType::Float}).has_rank(2).has_size(0, rows, "as q has rows").has_size(1, kHeads, "heads");
    weights_.is_contiguous();
    const int64_t contexts_a_request = check_contexts(contexts_, context_lens);
    contexts_.has_size(0, requests, "as q has requests");
    if (contexts_a_request > 1) contexts_.has_size(1, next_n, "as q has rows a request");
    tables_.has_type({ScalarType::Int}).has_rank(2).has_size(0, requests, "as q has requests");
    tables_.has_size_between(1, 1, kMostColumns / page_size).has_rows(1);
    const int64_t slots = check_schedule(schedule_, schedule_metadata);
    if (max_model_len < 1 || max_model_len > kMostColumns)
        refuse(op, "max_model_len: is ", max_model_len, "; expected 1 to ", kMostColumns);
    out_.has_type({ScalarType::Float}).has_rank(2).has_size(0, rows, "as q has rows");
    out_.has_size(1, max_model_len, "as max_model_len is").has_rows(1);
    q_.is_aligned(16);
    cache_.is_aligned(16);
    q_.is_on_cuda();
    if (mxfp4) Argument{op, "q_scale", *q_scale}.is_where(q_);
    for (const Argument* each : {&cache_, &weights_, &contexts_, &tables_, &schedule_, &out_}) each->is_where(q_);

    const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
    const Args args{
        q.data_ptr(),
        mxfp4 ? q_scale->data_ptr() : nullptr,
        kv_cache.data_ptr(),
        weights.data_ptr(),
        context_lens.data_ptr(),
        block_tables.data_ptr(),
        schedule_metadata.data_ptr(),
        out.data_ptr(),
        kv_cache.stride(0),
        block_tables.stride(0),
        out.stride(0),
        static_cast<int>(requests),
        static_cast<int>(next_n),
        static_cast<int>(kv_cache.size(0)),
        std::countr_zero(static_cast<unsigned>(page_size)),
        static_cast<int>(block_tables.size(1)),
        static_cast<int>(max_model_len),
        static_cast<int>(slots),
        contexts_a_request > 1,
        mxfp4,
    };
    if (const int error = run(args, dependent, current_stream(op, q))) refuse(op, "the launch failed with CUDA error ", error);
}

void metadata(Tensor context_lens, int64_t block_size, Tensor out, bool dependent) {
    const char* const op = "paged_mqa_logits_metadata";
    const Argument contexts_{op, "context_lens", context_lens}, out_{op, "out", out};
    const int64_t rows = check_contexts(contexts_, context_lens);
    if (!is_page_size(block_size)) refuse(op, "block_size: is ", block_size, "; expected one of ", page_sizes());
    const int64_t slots = check_schedule(out_, out);
    contexts_.is_on_cuda();
    out_.is_where(contexts_);

    const torch::stable::accelerator::DeviceGuard guard(context_lens.get_device_index());
    const ScheduleArgs args{context_lens.data_ptr(), out.data_ptr(), static_cast<int>(context_lens.size(0)),
                            static_cast<int>(rows), static_cast<int>(slots)};
    if (const int error = run_schedule(args, dependent, current_stream(op, context_lens)))
        refuse(op, "the launch failed with CUDA error ", error);
}

}  // namespace moet::paged_mqa_logits

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def(
        "paged_mqa_logits(Tensor q, Tensor? q_scale, Tensor kv_cache, Tensor weights, Tensor context_lens, "
        "Tensor block_tables, Tensor schedule_metadata, int max_model_len, Tensor(a!) out, bool dependent=False) -> ()");
    m.def("paged_mqa_logits_metadata(Tensor context_lens, int block_size, Tensor(a!) out, bool dependent=False) -> ()");
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) {
    m.impl("paged_mqa_logits", TORCH_BOX(&moet::paged_mqa_logits::logits));
    m.impl("paged_mqa_logits_metadata", TORCH_BOX(&moet::paged_mqa_logits::metadata));
}
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) {
    m.impl("paged_mqa_logits", TORCH_BOX(&moet::paged_mqa_logits::logits));
    m.impl("paged_mqa_logits_metadata", TORCH_BOX(&moet::paged_mqa_logits::metadata));
}
