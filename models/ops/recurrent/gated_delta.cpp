#include "models/ops/recurrent/gated_delta.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>

#include "models/base/dims.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/recurrent/delta_composed.h"
#include "models/ops/recurrent/delta_cpu.h"

namespace lft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_cpu_loops(const DeltaInput& in) {
  const at::ScalarType type = in.v_tne.scalar_type();
  return in.v_tne.device().is_cpu() && (has_loop_type(type) || type == at::kDouble);
}

/// Whether the last two dimensions are dense.
at::Tensor with_dense_rows(const at::Tensor& x) {
  const bool dense = x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2));
  return dense ? x : x.contiguous();
}

at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// With g and beta as the loops read them.
DeltaInput prepared(const DeltaInput& in) {
  const at::ScalarType wide = wide_type(in.v_tne);
  return {with_dense_rows(in.q_thd), with_dense_rows(in.k_thd), with_dense_rows(in.v_tne),
          in.g_tn.to(wide).contiguous(), in.beta_tn.to(wide).contiguous()};
}

struct DeltaFunction : torch::autograd::Function<DeltaFunction> {
  /// `result` is what the loops return; its states are outside the graph.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& g, const at::Tensor& beta,
                            const std::optional<at::Tensor>& state,
                            const std::shared_ptr<const PackedSequences>& sequences,
                            bool final_state, DeltaResult* result) {
    *result = cpu_delta_rule(prepared({q, k, v, g, beta}), *sequences, state.value_or(at::Tensor()),
                             final_state);
    ctx->save_for_backward({q, k, v, g, beta, state.value_or(at::Tensor())});
    ctx->saved_data["starts"] = sequences->starts;
    return result->out_tne;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const DeltaInput in{saved[0], saved[1], saved[2], saved[3], saved[4]};
    PackedSequences sequences;
    sequences.starts = ctx->saved_data["starts"].toIntVector();
    const DeltaInput of =
        cpu_delta_gradients(prepared(in), sequences, saved[5], gradients[0].contiguous());
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
  if (!has_cpu_loops(in)) return composed_delta_rule(in, sequences, state_snde, final_state);
  std::optional<at::Tensor> state;
  if (state_snde.defined()) state = state_snde.detach().to(wide_type(in.v_tne)).contiguous();
  DeltaResult result;
  result.out_tne = DeltaFunction::apply(in.q_thd, in.k_thd, in.v_tne, in.g_tn, in.beta_tn, state,
                                        std::make_shared<const PackedSequences>(sequences),
                                        final_state, &result);
  return result;
}

}  // namespace lft::ops
