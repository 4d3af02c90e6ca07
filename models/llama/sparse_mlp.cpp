#include "models/llama/sparse_mlp.h"

#include <ATen/ATen.h>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/ops/linear/linear.h"

namespace lft::llama {

RouterImpl::RouterImpl(const LlamaConfig& config, at::TensorOptions options)
    : per_token_(config.experts.per_token) {
  weight = register_parameter("weight", at::empty({config.experts.count, config.hidden}, options),
                              /*requires_grad=*/false);
}

Choice RouterImpl::forward(const at::Tensor& x_td, const layers::RoutingPtr& routing) {
  const at::Tensor logits = ops::linear(x_td, weight, at::Tensor());
  const auto [values, experts] =
      layers::balanced(at::softmax(logits, -1, at::kFloat), routing).topk(per_token_, -1);
  return {experts, (values / values.sum(-1, /*keepdim=*/true)).to(logits.scalar_type())};
}

ExpertsImpl::ExpertsImpl(const LlamaConfig& config, at::TensorOptions linear_options) {
  const ExpertConfig& of = config.experts;
  gate_up_proj = register_module(
      "gate_up_proj",
      layers::ExpertLinear(of.count, config.hidden, 2 * of.intermediate, linear_options));
  down_proj = register_module(
      "down_proj", layers::ExpertLinear(of.count, of.intermediate, config.hidden, linear_options));
}

at::Tensor ExpertsImpl::forward(const at::Tensor& x_td, const Choice& choice,
                                const layers::RoutingPtr& routing) {
  const ops::ExpertRowsPtr rows = ops::sort_by_expert(choice.experts_tk, gate_up_proj->experts);
  if (routing) routing->count(*rows, choice.experts_tk);
  const at::Tensor gate_up = call("gate_up_proj", gate_up_proj, x_td, rows);
  return call("down_proj", down_proj, gate_up, choice.shares_tk, rows, ops::Gate::kSilu);
}

SparseMlpImpl::SparseMlpImpl(const LlamaConfig& config, at::TensorOptions options,
                             at::TensorOptions linear_options) {
  gate = register_module("gate", Router(config, options));
  experts = register_module("experts", Experts(config, linear_options));
  if (config.experts.shared_intermediate == 0) return;
  shared_expert = register_module(
      "shared_expert", LlamaMlp(config, config.experts.shared_intermediate, linear_options));
  shared_expert_gate = register_module(
      "shared_expert_gate", layers::Linear(config.hidden, 1, /*has_bias=*/false, options));
}

at::Tensor SparseMlpImpl::forward(const ops::Normed& input, const layers::RoutingPtr& routing) {
  const at::Tensor x_td = input.y.flatten(0, -2);
  const Choice choice = call("gate", gate, x_td, routing);
  at::Tensor y = call("experts", experts, x_td, choice, routing);
  expect_dims(y, "the output of experts", {{"t", x_td.size(0)}, {"d", x_td.size(1)}});
  y = y.view_as(input.y);
  if (!shared_expert) return y;
  const at::Tensor share = call("shared_expert_gate", shared_expert_gate, input.y).sigmoid();
  return y + share * call("shared_expert", shared_expert, input);
}

}  // namespace lft::llama
