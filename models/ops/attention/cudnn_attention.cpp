#include "models/ops/attention/cudnn_attention.h"

#ifdef LFT_HAVE_CUDA
#include <ATen/ATen.h>
#include <ATen/ceil_div.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/common/error.h"
#include "kernels/common/module_path.h"
#include "kernels/cudnn_module/module.h"
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
#ifdef LFT_HAVE_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Null if the module cannot be opened.
CudnnAttention* library() {
  static CudnnAttention* const opened = []() -> CudnnAttention* {
    void* const entry = module_entry(kCudnnModule, kCudnnEntry).function;
    return entry == nullptr ? nullptr : reinterpret_cast<CudnnEntry>(entry)();
  }();
  return opened;
}

/// The next power of two, or one of the seven steps below it.
int64_t rounded_tokens(int64_t tokens) {
  const auto whole = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(tokens, 1024)));
  return at::round_up(tokens, static_cast<int64_t>(whole / 8));
}

/// Rounded bounds, so that passes of similar lengths share a plan.
AttentionShape shape_of(const at::Tensor& q_the, const at::Tensor& k_tge,
                        const PackedSequences& sequences, bool causal) {
  const auto count = static_cast<uint64_t>(sequences.starts_s1.numel() - 1);
  return {.sequences = static_cast<int64_t>(std::bit_ceil(std::max<uint64_t>(count, 8))),
          .longest = at::round_up(sequences.longest(), int64_t{256}),
          .tokens = rounded_tokens(q_the.size(0)),
          .heads = q_the.size(1),
          .groups = k_tge.size(1),
          .size = q_the.size(2),
          .type = *float_type(q_the.scalar_type()),
          .causal = causal};
}

/// The beginnings of sequences in cuDNN's form.
struct Places {
  at::Tensor q_offsets, kv_offsets, lengths;
};

Places places_of(const PackedSequences& sequences, const AttentionShape& shape) {
  const at::Tensor& given = sequences.starts_s1;
  const int64_t missing = shape.sequences + 1 - given.numel();
  const at::Tensor starts =
      missing == 0 ? given
                   : at::cat({given, given.narrow(0, given.numel() - 1, 1).expand(missing)});
  return {starts * (shape.heads * shape.size), starts * (shape.groups * shape.size),
          at::diff(starts)};
}

struct Kept : torch::CustomClassHolder {
  AttentionShape shape;
};

void run(const AttentionShape& shape, bool backward, AttentionCall call, const at::Tensor& q) {
  const int64_t bytes = library()->workspace(shape, backward);
  const at::Tensor workspace =
      at::empty({std::max<int64_t>(bytes, 1)}, q.options().dtype(at::kByte));
  call.workspace = workspace.mutable_data_ptr();
  on_device_of(q, [&](Stream stream) {
    if (const char* why = library()->run(shape, backward, call, stream); why != nullptr)
      throw Error(ErrorKind::kInternal, std::string("cuDNN's attention failed: ") + why);
  });
}

struct CudnnFunction : torch::autograd::Function<CudnnFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionShape& shape,
                            const Places& places) {
    at::Tensor o = at::empty_like(q),
               stats = at::empty({shape.sequences, shape.heads, shape.longest, 1},
                                 q.options().dtype(at::kFloat));
    run(shape, /*backward=*/false,
        {.q = q.const_data_ptr(),
         .k = k.const_data_ptr(),
         .v = v.const_data_ptr(),
         .lengths = places.lengths.const_data_ptr(),
         .q_offsets = places.q_offsets.const_data_ptr(),
         .kv_offsets = places.kv_offsets.const_data_ptr(),
         .o = o.mutable_data_ptr(),
         .stats = stats.mutable_data_ptr()},
        q);
    ctx->save_for_backward(
        {q, k, v, o, stats, places.lengths, places.q_offsets, places.kv_offsets});
    const auto kept = c10::make_intrusive<Kept>();
    kept->shape = shape;
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    return o;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const at::Tensor grad = gradients[0].contiguous(), &q = saved[0], &k = saved[1], &v = saved[2];
    at::Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(k), grad_v = at::empty_like(v);
    run(kept->shape, /*backward=*/true,
        {.q = q.const_data_ptr(),
         .k = k.const_data_ptr(),
         .v = v.const_data_ptr(),
         .lengths = saved[5].const_data_ptr(),
         .q_offsets = saved[6].const_data_ptr(),
         .kv_offsets = saved[7].const_data_ptr(),
         .o = saved[3].mutable_data_ptr(),
         .stats = saved[4].mutable_data_ptr(),
         .grad_o = grad.const_data_ptr(),
         .grad_q = grad_q.mutable_data_ptr(),
         .grad_k = grad_k.mutable_data_ptr(),
         .grad_v = grad_v.mutable_data_ptr()},
        q);
    return {grad_q, grad_k, grad_v, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::optional<at::Tensor> cudnn_attention(const at::Tensor& q_the, const at::Tensor& k_tge,
                                          const at::Tensor& v_tge, const PackedSequences& sequences,
                                          bool causal) {
  constexpr int64_t kLargestHead = 128, kMostElements = std::numeric_limits<int32_t>::max();
  const int64_t size = q_the.size(2);
  if (!q_the.is_cuda() || size % 8 != 0 || size > kLargestHead ||
      at::globalContext().deterministicAlgorithms() || library() == nullptr)
    return std::nullopt;
  const AttentionShape shape = shape_of(q_the, k_tge, sequences, causal);
  if (shape.tokens * shape.heads * size > kMostElements) return std::nullopt;
  const c10::DeviceGuard guard(q_the.device());
  if (library()->workspace(shape, /*backward=*/false) < 0 ||
      library()->workspace(shape, /*backward=*/true) < 0)
    return std::nullopt;
  return CudnnFunction::apply(q_the.contiguous(), k_tge.contiguous(), v_tge.contiguous(), shape,
                              places_of(sequences, shape));
}
#else
std::optional<at::Tensor> cudnn_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                          const PackedSequences&, bool) {
  return std::nullopt;
}
#endif

}  // namespace lft::ops
