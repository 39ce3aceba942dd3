// Registers moet::skinny_gemm, and checks its arguments.
#include <torch/csrc/stable/library.h>

#include "kernels/extension/arguments.h"
#include "kernels/skinny_gemm/launch.h"

namespace moet::skinny_gemm {

constexpr const char* kName = "skinny_gemm";

void op(Tensor x, Tensor weight, Tensor out, bool dependent) {
    const Argument x_{kName, "x", x}, weight_{kName, "weight", weight}, out_{kName, "out", out};
    x_.has_type({ScalarType::BFloat16}).has_rank(2).has_size_between(0, 1, kMostRows).has_size_between(1, kUnit, kMostK);
    x_.has_size_multiple(1, kUnit).has_rows(kUnit);
    weight_.has_type({ScalarType::BFloat16}).has_rank(2).has_size(1, x.size(1), "as x has");
    weight_.has_size_between(0, 1, INT32_MAX).has_rows(kUnit);
    out_.has_type({ScalarType::BFloat16, ScalarType::Float}).has_rank(2).has_size(0, x.size(0), "as x has");
    out_.has_size(1, weight.size(0), "as weight has rows").has_rows(1);
    x_.is_aligned(16);
    weight_.is_aligned(16);
    x_.is_on_cuda();
    weight_.is_where(x_);
    out_.is_where(x_);

    const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    const Args args{
        x.data_ptr(),
        weight.data_ptr(),
        out.data_ptr(),
        x.stride(0),
        weight.stride(0),
        out.stride(0),
        static_cast<int>(x.size(0)),
        static_cast<int>(weight.size(0)),
        static_cast<int>(x.size(1)),
        out.scalar_type() == ScalarType::Float,
    };
    if (const int error = run(args, dependent, current_stream(kName, x)))
        refuse(kName, "the launch failed with CUDA error ", error);
}

}  // namespace moet::skinny_gemm

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def("skinny_gemm(Tensor x, Tensor weight, Tensor(a!) out, bool dependent=False) -> ()");
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) { m.impl("skinny_gemm", TORCH_BOX(&moet::skinny_gemm::op)); }
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) { m.impl("skinny_gemm", TORCH_BOX(&moet::skinny_gemm::op)); }
