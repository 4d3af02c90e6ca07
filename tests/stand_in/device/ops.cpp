// LibTorch's ops on the simulated device: a few are implemented here, all others use the CPU's on
// the same memory.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <set>

#include "stand_in/device/backend.h"
#include "stand_in/device/memory.h"

namespace lft::test::stand_in {
namespace {

using torch::jit::IValue;
using torch::jit::Stack;

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false),
              "cannot pin memory of the stand-in device: only dense CPU tensors can be pinned");
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(device().type()), keys,
                                           dtype.value_or(at::kFloat));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> on,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const at::Tensor like = at::empty(size, at::TensorOptions(at::kMeta), format);
  return empty_strided(size, like.strides(), dtype, layout, on, pinned);
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  if (self.sizes() == size) return self;
  const at::Tensor fresh = at::empty(size, self.options());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(self, size, stride);
}

/// Between host and device, and between tensors of the device.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::Tensor source = from.is_cpu() ? from.expand_as(to) : from;
  if (from.is_cpu() && from.numel() > 0) {
    const bool pinned = is_pinned_address(from.const_data_ptr());
    if (!pinned || !non_blocking) refuse_in_capture("a copy from host memory that waits");
    count(pinned ? &Counts::pinned_copies : &Counts::pageable_copies);
  }
  if (to.is_cpu()) {
    const bool pinned = to.numel() > 0 && is_pinned_address(to.const_data_ptr());
    if (!pinned || !non_blocking) {
      refuse_in_capture("a copy to the host");
      count(&Counts::host_reads);
    }
  }
  count_bytes({from, to});
  const at::Tensor in = source.is_cpu() ? source : as_cpu(source);
  const at::Tensor out = to.is_cpu() ? to : as_cpu(to);
  launch([in, out] { at::Tensor(out).copy_(in); });
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  refuse_in_capture("item()");
  count(&Counts::host_reads);
  const Access access;
  return as_cpu(self).item();
}

/// math: the implementation composed of other ops.
int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                         bool) {
  return 0;
}

/// Ops with data-dependent result sizes: a GPU makes the host wait for them.
bool sizes_depend_on_data(const std::string& name, const Stack& arguments) {
  static const std::set<std::string> names = {"aten::nonzero",  "aten::masked_select",
                                              "aten::_unique2", "aten::unique_dim",
                                              "aten::bincount", "aten::repeat_interleave"};
  if (names.contains(name)) return true;
  if (name != "aten::index" && name != "aten::_index_put_impl_") return false;
  for (const IValue& argument : arguments) {  // a mask among the indices
    if (!argument.isOptionalTensorList()) continue;
    for (const std::optional<at::Tensor>& index : argument.toOptionalTensorVector()) {
      if (index && index->defined() && index->scalar_type() == at::kBool) return true;
    }
  }
  return false;
}

/// A GPU sums FP16 products in float32 and rounds once; the CPU rounds partial sums
/// too.
bool sums_in_half(const std::string& name, const Stack& arguments) {
  static const std::set<std::string> products = {"aten::mm",  "aten::addmm",   "aten::addmm_",
                                                 "aten::bmm", "aten::baddbmm", "aten::baddbmm_"};
  return products.contains(name) && arguments[0].isTensor() &&
         arguments[0].toTensor().scalar_type() == at::kHalf;
}

void call_on_cpu(const c10::OperatorHandle& op, Stack& stack) {
  if (!sums_in_half(op.schema().name(), stack)) return op.redispatchBoxed(kCpu, &stack);
  const Stack narrow = stack;
  for (IValue& argument : stack) {
    if (argument.isTensor()) argument = argument.toTensor().to(at::kFloat);
  }
  at::Tensor into;  // the argument that the op writes to
  if (op.schema().name().back() == '_') into = narrow.front().toTensor();
  if (op.schema().overload_name() == "out") into = narrow.back().toTensor();
  op.redispatchBoxed(kCpu, &stack);
  const at::Tensor wide = stack.front().toTensor();
  stack.front() = into.defined() ? into.copy_(wide) : wide.to(at::kHalf);
}

/// Ops that CUDA refuses under deterministic algorithms
/// (https://docs.pytorch.org/docs/2.11/generated/torch.use_deterministic_algorithms.html).
void refuse_what_does_not_repeat(const std::string& name) {
  static const std::set<std::string> refused = [] {
    std::set<std::string> names;
    for (const char* each : {"upsample_linear1d_backward",
                             "upsample_bilinear2d_backward",
                             "_upsample_bilinear2d_aa_backward",
                             "upsample_bicubic2d_backward",
                             "_upsample_bicubic2d_aa_backward",
                             "upsample_trilinear3d_backward",
                             "avg_pool3d_backward",
                             "_adaptive_avg_pool2d_backward",
                             "_adaptive_avg_pool3d_backward",
                             "adaptive_max_pool2d_backward",
                             "max_pool3d_with_indices_backward",
                             "fractional_max_pool2d_backward",
                             "fractional_max_pool3d_backward",
                             "max_unpool2d",
                             "max_unpool3d",
                             "reflection_pad1d_backward",
                             "reflection_pad2d_backward",
                             "reflection_pad3d_backward",
                             "replication_pad1d_backward",
                             "replication_pad2d_backward",
                             "replication_pad3d_backward",
                             "nll_loss2d_forward",
                             "_ctc_loss_backward",
                             "grid_sampler_2d_backward",
                             "grid_sampler_3d_backward",
                             "histc",
                             "bincount",
                             "kthvalue",
                             "median",
                             "put_",
                             "cumsum"})
      names.insert(std::string("aten::") + each);
    return names;
  }();
  TORCH_CHECK(!at::globalContext().deterministicAlgorithms() || !refused.contains(name), name,
              " does not have a deterministic implementation on CUDA");
}

/// The call on the CPU, with every device tensor replaced by its CPU view.
class CpuCall {
 public:
  CpuCall(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {
    const size_t count = op.schema().arguments().size();
    arguments_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    for (const IValue& argument : arguments_) call_.push_back(translate(argument));
  }

  void run() {
    const std::string& name = op_.schema().name();
    refuse_what_does_not_repeat(name);
    if (sizes_depend_on_data(name, arguments_)) {
      refuse_in_capture(name);
      count(&Counts::host_reads);
    }
    if (name == "aten::_index_put_impl_" && at::globalContext().deterministicAlgorithms())
      count(&Counts::sorted_writes);
    const bool records = is_recording();
    count(&Counts::launches);
    Stack results = call_;
    {
      const Access access;
      call_on_cpu(op_, results);
    }
    torch::jit::drop(stack_, arguments_.size());
    std::vector<at::Tensor> fresh;  // results as CPU views of device memory
    for (size_t i = 0; i < results.size(); ++i) stack_.push_back(bring(i, results[i], fresh));
    count_bytes(copies_);
    count_bytes(fresh);
    if (records) record(std::move(fresh));
  }

 private:
  at::Tensor on_cpu(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (tensor.device() != device()) {
      // As on a GPU: a scalar may come from the host.
      TORCH_CHECK(
          tensor.is_cpu() && tensor.dim() == 0, op_.schema().name(),
          ": Expected all tensors to be on the same device, but found at least two devices, ",
          device(), " and ", tensor.device());
      return tensor;
    }
    originals_.push_back(tensor);
    copies_.push_back(as_cpu(tensor));
    return copies_.back();
  }

  IValue translate(const IValue& value) {
    if (value.isTensor()) return on_cpu(value.toTensor());
    if (value.isDevice()) return at::Device(at::kCPU);
    if (value.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(on_cpu(tensor));
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        tensors.push_back(tensor ? std::make_optional(on_cpu(*tensor)) : std::nullopt);
      }
      return tensors;
    }
    return value;
  }

  /// A CPU result as a device tensor: the argument that it aliases, or new memory.
  at::Tensor bring_tensor(const at::Tensor& result, std::vector<at::Tensor>& fresh) {
    if (!result.defined()) return result;
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (!copies_[i].is_same(result)) continue;
      if (originals_[i].sizes() == result.sizes()) return originals_[i];
      originals_[i].resize_(result.sizes());  // an out= argument without a size
      const Access access;
      as_cpu(originals_[i]).copy_(result);
      return originals_[i];
    }
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (result.numel() == 0 || !result.is_alias_of(copies_[i])) continue;
      const auto offset = originals_[i].storage_offset() + result.storage_offset();
      return originals_[i].as_strided(result.sizes(), result.strides(), offset);
    }
    const at::Tensor there =
        at::empty_strided(result.sizes(), result.strides(), result.options().device(device()));
    fresh.push_back(as_cpu(there));
    const Access access;
    fresh.back().copy_(result);
    return there;
  }

  IValue bring(size_t place, const IValue& result, std::vector<at::Tensor>& fresh) {
    if (result.isTensor()) return bring_tensor(result.toTensor(), fresh);
    if (result.isTensorList()) {
      std::vector<at::Tensor> tensors;
      for (const at::Tensor& tensor : result.toTensorVector())
        tensors.push_back(bring_tensor(tensor, fresh));
      return tensors;
    }
    if (!result.isNone()) {  // a number or a boolean computed from values
      refuse_in_capture(op_.schema().name());
      count(&Counts::host_reads);
    }
    return result;
  }

  void record(std::vector<at::Tensor> fresh) {
    // Replayed: the same op, with its new results copied to the same addresses.
    stand_in::record([op = op_, call = call_, fresh = std::move(fresh)] {
      Stack results = call;
      call_on_cpu(op, results);
      size_t next = 0;
      const auto place = [&](const at::Tensor& result) {
        for (const IValue& argument : call) {
          if (argument.isTensor() && result.is_same(argument.toTensor())) return;
        }
        if (result.defined() && next < fresh.size() && fresh[next].sizes() == result.sizes()) {
          at::Tensor(fresh[next++]).copy_(result);
        }
      };
      for (const IValue& result : results) {
        if (result.isTensor()) place(result.toTensor());
        if (!result.isTensorList()) continue;
        for (const at::Tensor& tensor : result.toTensorVector()) place(tensor);
      }
    });
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  Stack arguments_, call_;
  std::vector<at::Tensor> originals_, copies_;
};

void on_the_cpu(const c10::OperatorHandle& op, Stack* stack) { CpuCall(op, *stack).run(); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view",
         static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("resize_", &resize);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("_fused_sdp_choice", &fused_sdp_choice);
}

}  // namespace
}  // namespace lft::test::stand_in
