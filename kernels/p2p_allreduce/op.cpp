// Registers moet::p2p_allreduce and what maps the memory for it, and checks their arguments.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "kernels/extension/arguments.h"
#include "kernels/p2p_allreduce/launch.h"
#include "kernels/p2p_allreduce/memory.h"

namespace moet::p2p_allreduce {

constexpr const char* kName = "p2p_allreduce";

Type type_of(const Tensor& x) {
    switch (x.scalar_type()) {
        case ScalarType::BFloat16: return Type::kBfloat16;
        case ScalarType::Half: return Type::kHalf;
        default: return Type::kFloat;
    }
}

void check_tensors(const Argument& x_, const Tensor& x, const Argument& out_, const Tensor& out, bool ll) {
    x_.has_type({ScalarType::BFloat16, ScalarType::Half, ScalarType::Float}).is_contiguous();
    const int64_t bytes = x.numel() * x.element_size();
    if (bytes < kUnitBytes || bytes > kMostBytes || bytes % kUnitBytes)
        refuse(kName, "x: has ", bytes, " bytes; expected a multiple of ", kUnitBytes, " up to ", kMostBytes);
    if (ll && bytes > kMostLLBytes) refuse(kName, "ll: x has ", bytes, " bytes; expected up to ", kMostLLBytes);
    out_.has_type({x.scalar_type()}).is_contiguous();
    if (shape_of(out) != shape_of(x)) refuse(kName, "out: shape is ", shape_of(out), "; expected ", shape_of(x), ", as x has");
    x_.is_aligned(kUnitBytes);
    out_.is_aligned(kUnitBytes);
}

void check_ranks(const std::vector<int64_t>& workspaces, int64_t rank, int64_t deadline_ns) {
    const auto world = static_cast<int64_t>(workspaces.size());
    check_world(kName, "number of workspaces", world);
    if (rank < 0 || rank >= world) refuse(kName, "rank: is ", rank, "; expected 0 to ", world - 1);
    for (const int64_t address : workspaces)
        if (!address || address % kUnitBytes) refuse(kName, "workspaces: one is at address ", address, "; expected what p2p_open returned");
    if (deadline_ns <= 0) refuse(kName, "deadline_ns: is ", deadline_ns, "; expected more than 0");
}

void op(Tensor x, Tensor out, int64_t status, std::vector<int64_t> workspaces, int64_t rank, int64_t deadline_ns,
        bool dependent, bool ll) {
    const Argument x_{kName, "x", x}, out_{kName, "out", out};
    check_tensors(x_, x, out_, out, ll);
    check_ranks(workspaces, rank, deadline_ns);
    x_.is_on_cuda();
    out_.is_where(x_);

    const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    Args args{};
    void* status_there = nullptr;
    if (cudaHostGetDevicePointer(&status_there, reinterpret_cast<void*>(status), 0)) {
        cudaGetLastError();
        refuse(kName, "status: is at address ", status, "; expected one in pinned memory of the host");
    }
    args.x = x.data_ptr();
    args.out = out.data_ptr();
    args.status = static_cast<uint64_t*>(status_there);
    for (size_t i = 0; i < workspaces.size(); i++) args.workspaces[i] = reinterpret_cast<void*>(workspaces[i]);
    args.deadline_ns = static_cast<uint64_t>(deadline_ns);
    args.rank = static_cast<int>(rank);
    args.world = static_cast<int>(workspaces.size());
    args.units = static_cast<int>(x.numel() * x.element_size() / kUnitBytes);
    if (const int error = run(args, type_of(x), ll, dependent, current_stream(kName, x)))
        refuse(kName, "the launch failed with CUDA error ", error);
}

}  // namespace moet::p2p_allreduce

namespace p2p = moet::p2p_allreduce;

STABLE_TORCH_LIBRARY_FRAGMENT(moet, m) {
    m.def(
        "p2p_allreduce(Tensor x, Tensor(a!) out, int status, int[] workspaces, int rank, int deadline_ns, "
        "bool dependent=False, bool ll=False) -> ()");
    m.def("p2p_allocate(int device, int world) -> int");
    m.def("p2p_release(int device, int address) -> ()");
    m.def("p2p_export(int device, int address) -> int[]");
    m.def("p2p_open(int device, int[] handle) -> int");
    m.def("p2p_close(int device, int address) -> ()");
}

// For CPU tensors too: the checks say what is wrong with them, which the dispatcher would not.
STABLE_TORCH_LIBRARY_IMPL(moet, CPU, m) { m.impl("p2p_allreduce", TORCH_BOX(&p2p::op)); }
STABLE_TORCH_LIBRARY_IMPL(moet, CUDA, m) { m.impl("p2p_allreduce", TORCH_BOX(&p2p::op)); }

// Without tensors there is no device to dispatch on.
STABLE_TORCH_LIBRARY_IMPL(moet, CompositeExplicitAutograd, m) {
    m.impl("p2p_allocate", TORCH_BOX(&p2p::allocate));
    m.impl("p2p_release", TORCH_BOX(&p2p::release));
    m.impl("p2p_export", TORCH_BOX(&p2p::export_handle));
    m.impl("p2p_open", TORCH_BOX(&p2p::open_handle));
    m.impl("p2p_close", TORCH_BOX(&p2p::close_handle));
}
