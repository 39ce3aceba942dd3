// Registers moet::kv_record, moet::kv_record_key and moet::kv_record_gather, and checks their arguments.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <optional>

#include "kernels/extension/arguments.h"
#include "kernels/kv_record/launch.h"

namespace moet::kv_record {

constexpr int64_t kMostPages = 1 << 28, kMostHeads = 128;

// Checks pages of one of `records`; returns which it is.
Record check_cache(const char* op, const Tensor& cache, std::initializer_list<Record> records) {
    const Argument cache_{op, "cache", cache};
    cache_.has_type({ScalarType::Byte}).has_rank(3).has_size_between(0, 1, kMostPages);
    if (std::find(std::begin(kPageSizes), std::end(kPageSizes), cache.size(1)) == std::end(kPageSizes))
        refuse(op, "cache: shape is ", shape_of(cache), "; expected dimension 1 to be 32, 64 or 128");
    const auto found = std::find_if(records.begin(), records.end(), [&](Record r) { return r.width == cache.size(2); });
    if (found == records.end()) {
        std::string widths;
        for (const Record& each : records) widths += (widths.empty() ? "" : " or ") + std::to_string(each.width);
        refuse(op, "cache: shape is ", shape_of(cache), "; expected dimension 2 to be ", widths);
    }
    const int64_t page_bytes = cache.size(1) * found->width;
    if (cache.stride(2) != 1 || cache.stride(1) != found->width ||
        (cache.size(0) > 1 && (cache.stride(0) < page_bytes || cache.stride(0) % 16)))
        refuse(op, "cache: strides are ", strides_of(cache), "; expected pages of ", page_bytes,
               " bytes without gaps, a multiple of 16 bytes apart");
    cache_.is_aligned(16);
    return *found;
}

Cache as_cache(const Tensor& cache) {
    const int64_t page = cache.size(1);
    return {static_cast<uint8_t*>(cache.data_ptr()), cache.stride(0), cache.size(0) * page,
            std::countr_zero(static_cast<uint64_t>(page))};
}

// What a writer may have beside rows and where they go.
struct More {
    const Tensor* weight = nullptr;   // of keys
    const Tensor* queries = nullptr;  // of records
    float eps = 0;
};

void check_queries(const char* op, const Tensor& queries, const Tensor& positions) {
    const Argument queries_{op, "queries", queries};
    queries_.has_type({ScalarType::BFloat16}).has_rank(3).has_size_between(0, 0, positions.size(0));
    queries_.has_size_between(1, 1, kMostHeads).has_size(2, kQueryDims, "numbers of a head");
    if (queries.size(0) * queries.size(1) > kMostQueries)
        refuse(op, "queries: shape is ", shape_of(queries), "; expected no more than ", kMostQueries, " heads in all");
    queries_.has_rows(8).is_aligned(16);
    const bool far = queries.stride(0) >= queries.size(1) * queries.stride(1);
    if (!far && queries.size(0) > 1 && queries.size(1) > 1)
        refuse(op, "queries: strides are ", strides_of(queries), " for shape ", shape_of(queries),
               "; expected heads of a token beside each other");
}

void write(const char* op, const Tensor& rows, const Tensor& positions, const Tensor& cos_sin, const Tensor& slots,
           const Tensor& cache, const Record& record, const More& more, int64_t ratio, bool dependent) {
    const Argument rows_{op, "rows", rows}, positions_{op, "positions", positions}, slots_{op, "slots", slots};
    const Argument cos_sin_{op, "cos_sin", cos_sin}, cache_{op, "cache", cache};
    rows_.has_type({ScalarType::BFloat16}).has_rank(2).has_size_between(0, 0, kMostRows);
    rows_.has_size(1, record.dims, "as the cache's record has").has_rows(8).is_aligned(16);
    slots_.has_type({ScalarType::Long}).has_rank(1).has_size_between(0, 0, rows.size(0)).is_contiguous();
    positions_.has_type({ScalarType::Long}).has_rank(1).has_size_between(0, slots.size(0), kMostRows).is_contiguous();
    cos_sin_.has_type({ScalarType::Float}).has_rank(2).has_size_between(0, 1, kMostRows);
    cos_sin_.has_size(1, kRopeDims, "cosines and sines of 32 pairs").is_contiguous().is_aligned(16);
    if (more.queries) check_queries(op, *more.queries, positions);
    if (ratio < 1 || ratio > kMostRatio) refuse(op, "compress_ratio: is ", ratio, "; expected 1 or 2");
    rows_.is_on_cuda();
    for (const Argument* each : {&positions_, &cos_sin_, &slots_, &cache_}) each->is_where(rows_);
    if (more.weight) Argument{op, "weight", *more.weight}.is_where(rows_);
    if (more.queries) Argument{op, "queries", *more.queries}.is_where(rows_);
    if (slots.size(0) == 0 && (!more.queries || more.queries->size(0) == 0)) return;

    const torch::stable::accelerator::DeviceGuard guard(rows.get_device_index());
    WriteArgs args{};
    args.rows = rows.data_ptr();
    args.positions = static_cast<const int64_t*>(positions.data_ptr());
    args.slots = static_cast<const int64_t*>(slots.data_ptr());
    args.cos_sin = static_cast<const float*>(cos_sin.data_ptr());
    args.weight = more.weight ? more.weight->data_ptr() : nullptr;
    args.cache = as_cache(cache);
    args.row_stride = rows.stride(0);
    args.known = cos_sin.size(0);
    args.count = static_cast<int>(slots.size(0));
    args.ratio = static_cast<int>(ratio);
    args.eps = more.eps;
    if (more.queries) {
        args.queries = more.queries->data_ptr();
        args.token_stride = more.queries->stride(0);
        args.head_stride = more.queries->stride(1);
        args.tokens = static_cast<int>(more.queries->size(0));
        args.heads = static_cast<int>(more.queries->size(1));
    }
    if (const int error = run(args, record.width, dependent, current_stream(op, rows)))
        refuse(op, "the launch failed with CUDA error ", error);
}

void record_op(Tensor rows, Tensor positions, Tensor cos_sin, Tensor slots, Tensor cache, std::optional<Tensor> queries,
               int64_t compress_ratio, bool dependent) {
    const Record record = check_cache("kv_record", cache, {kMxfp8, kFp4});
    const More more{.queries = queries ? &*queries : nullptr};
    write("kv_record", rows, positions, cos_sin, slots, cache, record, more, compress_ratio, dependent);
}

void key_op(Tensor rows, Tensor positions, Tensor cos_sin, Tensor slots, Tensor weight, Tensor cache,
            int64_t compress_ratio, double eps, bool dependent) {
    const char* const op = "kv_record_key";
    check_cache(op, cache, {kKey});
    const Argument weight_{op, "weight", weight};
    weight_.has_type({ScalarType::BFloat16}).has_rank(1).has_size(0, kKey.dims, "numbers of a key");
    weight_.is_contiguous().is_aligned(16);
    if (!(eps >= 0) || std::isinf(eps)) refuse(op, "eps: is ", eps, "; expected a number, 0 or more");
    const More more{.weight = &weight, .eps = static_cast<float>(eps)};
    write(op, rows, positions, cos_sin, slots, cache, kKey, more, compress_ratio, dependent);
}

void gather_op(Tensor cache, Tensor slots, Tensor out) {
    const char* const op = "kv_record_gather";
    const Record record = check_cache(op, cache, {kMxfp8, kFp4, kKey});
    const Argument cache_{op, "cache", cache}, slots_{op, "slots", slots}, out_{op, "out", out};
    slots_.has_type({ScalarType::Long}).has_rank(1).has_size_between(0, 0, kMostRows).is_contiguous();
    out_.has_type({ScalarType::BFloat16}).has_rank(2).has_size(0, slots.size(0), "as there are slots");
    out_.has_size(1, record.dims, "as the cache's record has").is_contiguous().is_aligned(16);
    cache_.is_on_cuda();
    for (const Argument* each : {&slots_, &out_}) each->is_where(cache_);
    if (slots.size(0) == 0) return;

    const torch::stable::accelerator::DeviceGuard guard(cache.get_device_index());
    GatherArgs args{};
    args.cache = as_cache(cache);
    args.slots = static_cast<const int64_t*>(slots.data_ptr());
    args.out = out.data_ptr();
    args.count = static_cast<int>(slots.size(0));
    if (const int error = run_gather(args, record.width, current_stream(op, cache)))
        refuse(op, "the launch failed with CUDA error ", error);
}

}  // namespace moet::kv_record

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def(
        "kv_record(Tensor rows, Tensor positions, Tensor cos_sin, Tensor slots, Tensor(a!) cache, Tensor(b!)? queries, "
        "int compress_ratio, bool dependent=False) -> ()");
    m.def(
        "kv_record_key(Tensor rows, Tensor positions, Tensor cos_sin, Tensor slots, Tensor weight, Tensor(a!) cache, "
        "int compress_ratio, float eps, bool dependent=False) -> ()");
    m.def("kv_record_gather(Tensor cache, Tensor slots, Tensor(a!) out) -> ()");
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) {
    m.impl("kv_record", TORCH_BOX(&moet::kv_record::record_op));
    m.impl("kv_record_key", TORCH_BOX(&moet::kv_record::key_op));
    m.impl("kv_record_gather", TORCH_BOX(&moet::kv_record::gather_op));
}
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) {
    m.impl("kv_record", TORCH_BOX(&moet::kv_record::record_op));
    m.impl("kv_record_key", TORCH_BOX(&moet::kv_record::key_op));
    m.impl("kv_record_gather", TORCH_BOX(&moet::kv_record::gather_op));
}
