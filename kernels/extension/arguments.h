// Checks of an operator's arguments. Each failure names the argument, what it is and what was expected.
#pragma once
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>

// torch's CPU build lacks it: weak, so that the library loads there too, and says so when it is called.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace moet {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <typename... Parts>
[[noreturn]] void refuse(const char* op, const Parts&... parts) {
    std::ostringstream message;
    message << op << ": ";
    (message << ... << parts);
    throw std::runtime_error(message.str());
}

inline std::string shape_of(const Tensor& t) {
    std::ostringstream text;
    text << '[';
    for (int64_t i = 0; i < t.dim(); i++) text << (i ? ", " : "") << t.size(i);
    text << ']';
    return text.str();
}

inline std::string strides_of(const Tensor& t) {
    std::ostringstream text;
    text << '[';
    for (int64_t i = 0; i < t.dim(); i++) text << (i ? ", " : "") << t.stride(i);
    text << ']';
    return text.str();
}

inline const char* name_of(ScalarType type) {
    switch (type) {
        case ScalarType::BFloat16: return "bfloat16";
        case ScalarType::Half: return "float16";
        case ScalarType::Float: return "float32";
        case ScalarType::Double: return "float64";
        case ScalarType::Bool: return "bool";
        case ScalarType::Byte: return "uint8";
        case ScalarType::Char: return "int8";
        case ScalarType::Int: return "int32";
        case ScalarType::Long: return "int64";
        case ScalarType::Float8_e4m3fn: return "float8_e4m3fn";
        case ScalarType::Float8_e8m0fnu: return "float8_e8m0fnu";
        default: return "another type";
    }
}

// One tensor argument of one operator, by the names that a user knows.
class Argument {
  public:
    Argument(const char* op, const char* name, const Tensor& tensor) : op_(op), name_(name), tensor_(tensor) {}

    const Argument& has_type(std::initializer_list<ScalarType> allowed) const {
        std::string expected;
        for (const ScalarType type : allowed) {
            if (tensor_.scalar_type() == type) return *this;
            expected += (expected.empty() ? "" : " or ") + std::string(name_of(type));
        }
        refuse(op_, name_, ": dtype is ", name_of(tensor_.scalar_type()), "; expected ", expected);
    }

    const Argument& has_rank(int64_t rank) const {
        if (tensor_.dim() != rank) refuse(op_, name_, ": shape is ", shape_of(tensor_), "; expected ", rank, " dimensions");
        return *this;
    }

    const Argument& has_size(int64_t dimension, int64_t size, const char* why) const {
        if (tensor_.size(dimension) != size)
            refuse(op_, name_, ": shape is ", shape_of(tensor_), "; expected dimension ", dimension, " to be ", size, ", ", why);
        return *this;
    }

    const Argument& has_size_between(int64_t dimension, int64_t least, int64_t most) const {
        const int64_t size = tensor_.size(dimension);
        if (size < least || size > most)
            refuse(op_, name_, ": shape is ", shape_of(tensor_), "; expected dimension ", dimension, " to be ", least, " to ", most);
        return *this;
    }

    const Argument& has_size_multiple(int64_t dimension, int64_t unit) const {
        if (tensor_.size(dimension) % unit)
            refuse(op_, name_, ": shape is ", shape_of(tensor_), "; expected dimension ", dimension, " to be a multiple of ", unit);
        return *this;
    }

    // Elements of a row beside each other; rows apart by a multiple of `unit` elements, without overlap.
    const Argument& has_rows(int64_t unit) const {
        const int64_t last = tensor_.dim() - 1;
        if (tensor_.stride(last) != 1)
            refuse(op_, name_, ": strides are ", strides_of(tensor_), "; expected the last to be 1");
        for (int64_t d = 0; d < last; d++)
            if (tensor_.size(d) > 1 && (tensor_.stride(d) % unit || tensor_.stride(d) < tensor_.size(last)))
                refuse(op_, name_, ": strides are ", strides_of(tensor_), "; expected dimension ", d, "'s to be at least ",
                       tensor_.size(last), " and a multiple of ", unit);
        return *this;
    }

    const Argument& is_contiguous() const {
        if (!tensor_.is_contiguous())
            refuse(op_, name_, ": strides are ", strides_of(tensor_), " for shape ", shape_of(tensor_), "; expected a contiguous tensor");
        return *this;
    }

    const Argument& is_aligned(uint64_t bytes) const {
        if (reinterpret_cast<uint64_t>(tensor_.data_ptr()) % bytes)
            refuse(op_, name_, ": data begins at an address that is no multiple of ", bytes, " bytes; expected one");
        return *this;
    }

    const Argument& is_on_cuda() const {
        if (!tensor_.is_cuda()) refuse(op_, name_, ": is not on a CUDA device; expected one");
        return *this;
    }

    const Argument& is_where(const Argument& other) const {
        is_on_cuda();
        if (tensor_.get_device_index() != other.tensor_.get_device_index())
            refuse(op_, name_, ": is on cuda:", tensor_.get_device_index(), "; expected cuda:", other.tensor_.get_device_index(),
                   ", where ", other.name_, " is");
        return *this;
    }

  private:
    const char* op_;
    const char* name_;
    const Tensor& tensor_;
};

// The stream that torch launches on, on the device of `tensor`.
inline void* current_stream(const char* op, const Tensor& tensor) {
    void* stream = nullptr;
    if (!aoti_torch_get_current_cuda_stream || aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream))
        refuse(op, "torch has no CUDA stream; expected a CUDA build of torch");
    return stream;
}

}  // namespace moet
