#include "models/ops/recurrent/gated_delta.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/recurrent/delta_composed.h"
#include "models/ops/recurrent/delta_cpu.h"
#include "models/ops/recurrent/device_starts.h"
#ifdef LFT_HAVE_CUDA
#include "kernels/gated_delta/gated_delta.h"
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_cpu_loops(const DeltaInput& in) {
  const at::ScalarType type = in.v_tne.scalar_type();
  return in.v_tne.device().is_cpu() && (has_loop_type(type) || type == at::kDouble);
}

/// A copy unless the last two dimensions are dense.
at::Tensor with_dense_heads(const at::Tensor& x) {
  const bool dense = x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2));
  return dense ? x : x.contiguous();
}

at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// With g and beta as the loops read them.
DeltaInput prepared(const DeltaInput& in) {
  const at::ScalarType wide = wide_type(in.v_tne);
  return {with_dense_heads(in.q_thd), with_dense_heads(in.k_thd), with_dense_heads(in.v_tne),
          in.g_tn.to(wide).contiguous(), in.beta_tn.to(wide).contiguous()};
}

#ifdef LFT_HAVE_CUDA
bool has_delta_kernel(const DeltaInput& in) {
  const auto type = float_type(in.v_tne.scalar_type());
  return runs_kernels(in.v_tne.device()) && type.has_value() &&
         in.q_thd.size(2) <= kGatedDeltaMostKeys;
}

/// `starts` are those of the sequences on the device.
GatedDeltaArgs kernel_args(const DeltaInput& in, const at::Tensor& starts, int64_t sequences,
                           const at::Tensor& state_snde) {
  return {.type = *float_type(in.v_tne.scalar_type()),
          .tokens = in.v_tne.size(0),
          .sequences = sequences,
          .key_heads = in.q_thd.size(1),
          .heads = in.v_tne.size(1),
          .d = in.q_thd.size(2),
          .e = in.v_tne.size(2),
          .q_stride = in.q_thd.stride(0),
          .k_stride = in.k_thd.stride(0),
          .v_stride = in.v_tne.stride(0),
          .q = in.q_thd.const_data_ptr(),
          .k = in.k_thd.const_data_ptr(),
          .v = in.v_tne.const_data_ptr(),
          .g = in.g_tn.const_data_ptr<float>(),
          .beta = in.beta_tn.const_data_ptr<float>(),
          .starts = starts.const_data_ptr<int32_t>(),
          .state = state_snde.defined() ? state_snde.const_data_ptr<float>() : nullptr};
}

DeltaResult kernel_delta_rule(const DeltaInput& in, const at::Tensor& starts, int64_t sequences,
                              const at::Tensor& state_snde, bool final_state) {
  DeltaResult result{at::empty(in.v_tne.sizes(), in.v_tne.options()), {}};
  if (final_state) {
    result.state_snde = at::empty({sequences, in.v_tne.size(1), in.q_thd.size(2), in.v_tne.size(2)},
                                  in.g_tn.options());
  }
  on_device_of(in.v_tne, [&](Stream stream) {
    gated_delta(kernel_args(in, starts, sequences, state_snde), result.out_tne.mutable_data_ptr(),
                final_state ? result.state_snde.mutable_data_ptr<float>() : nullptr, stream);
  });
  return result;
}

DeltaInput kernel_delta_gradients(const DeltaInput& in, const at::Tensor& starts, int64_t sequences,
                                  const at::Tensor& state_snde, const at::Tensor& dout_tne) {
  const auto dense = [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const DeltaInput of{dense(in.q_thd), dense(in.k_thd), dense(in.v_tne), dense(in.g_tn),
                      dense(in.beta_tn)};
  const GatedDeltaArgs args = kernel_args(in, starts, sequences, state_snde);
  const at::Tensor workspace = at::empty({gated_delta_workspace(args)}, in.g_tn.options());
  on_device_of(in.v_tne, [&](Stream stream) {
    gated_delta_backward(args,
                         {.dout = dout_tne.const_data_ptr(),
                          .dq = of.q_thd.mutable_data_ptr(),
                          .dk = of.k_thd.mutable_data_ptr(),
                          .dv = of.v_tne.mutable_data_ptr(),
                          .dg = of.g_tn.mutable_data_ptr<float>(),
                          .dbeta = of.beta_tn.mutable_data_ptr<float>()},
                         workspace.mutable_data_ptr<float>(), stream);
  });
  return of;
}
#else
bool has_delta_kernel(const DeltaInput&) { return false; }
#endif

DeltaResult delta_values(const DeltaInput& in, const PackedSequences& sequences,
                         const at::Tensor& state_snde, bool final_state) {
#ifdef LFT_HAVE_CUDA
  if (has_delta_kernel(in)) {
    return kernel_delta_rule(in, sequences.starts_s1,
                             static_cast<int64_t>(sequences.starts.size()) - 1, state_snde,
                             final_state);
  }
#endif
  return cpu_delta_rule(in, sequences, state_snde, final_state);
}

DeltaInput delta_gradients(const DeltaInput& in, const PackedSequences& sequences,
                           const at::Tensor& state_snde, const at::Tensor& dout_tne) {
#ifdef LFT_HAVE_CUDA
  if (has_delta_kernel(in)) {
    return kernel_delta_gradients(in, sequences.starts_s1,
                                  static_cast<int64_t>(sequences.starts.size()) - 1, state_snde,
                                  dout_tne);
  }
#endif
  return cpu_delta_gradients(in, sequences, state_snde, dout_tne);
}

struct DeltaFunction : torch::autograd::Function<DeltaFunction> {
  /// `result` receives the states, which are outside the graph.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& g, const at::Tensor& beta,
                            const std::optional<at::Tensor>& state,
                            const PackedSequences* sequences, bool final_state,
                            DeltaResult* result) {
    *result = delta_values(prepared({q, k, v, g, beta}), *sequences, state.value_or(at::Tensor()),
                           final_state);
    ctx->save_for_backward({q, k, v, g, beta, state.value_or(at::Tensor()), sequences->starts_s1});
    ctx->saved_data["starts"] = sequences->starts;
    return result->out_tne;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const DeltaInput in{saved[0], saved[1], saved[2], saved[3], saved[4]};
    PackedSequences sequences;
    sequences.starts = ctx->saved_data["starts"].toIntVector();
    sequences.starts_s1 = saved[6];
    const DeltaInput of =
        delta_gradients(prepared(in), sequences, saved[5], gradients[0].contiguous());
    return {of.q_thd,
            of.k_thd,
            of.v_tne,
            of.g_tn.to(in.g_tn.scalar_type()),
            of.beta_tn.to(in.beta_tn.scalar_type()),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

void expect_sizes(const DeltaInput& in, const PackedSequences& sequences,
                  const at::Tensor& state_snde) {
  const int64_t t = sequences.starts.back();
  expect_dims(in.q_thd, "q", {{"t", t}, {"h"}, {"d"}});
  expect_dims(in.k_thd, "k", {{"t", t}, {"h", in.q_thd.size(1)}, {"d", in.q_thd.size(2)}});
  expect_dims(in.v_tne, "v", {{"t", t}, {"n"}, {"e"}});
  const int64_t n = in.v_tne.size(1);
  expect_dims(in.g_tn, "g", {{"t", t}, {"n", n}});
  expect_dims(in.beta_tn, "beta", {{"t", t}, {"n", n}});
  if (!state_snde.defined()) return;
  expect_dims(state_snde, "state",
              {{"s", static_cast<int64_t>(sequences.starts.size()) - 1},
               {"n", n},
               {"d", in.q_thd.size(2)},
               {"e", in.v_tne.size(2)}});
}

}  // namespace

DeltaResult gated_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                             const at::Tensor& state_snde, bool final_state) {
  expect_sizes(in, sequences, state_snde);
  if (!has_cpu_loops(in) && !has_delta_kernel(in))
    return composed_delta_rule(in, sequences, state_snde, final_state);
  std::optional<at::Tensor> state;
  if (state_snde.defined()) state = state_snde.detach().to(wide_type(in.v_tne)).contiguous();
  PackedSequences own = sequences;
  own.starts_s1 = device_starts(sequences, in.v_tne.device());
  DeltaResult result;
  result.out_tne = DeltaFunction::apply(in.q_thd, in.k_thd, in.v_tne, in.g_tn, in.beta_tn, state,
                                        &own, final_state, &result);
  return result;
}

}  // namespace lft::ops
