#include "models/llama/mlp.h"

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/linear_group.h"

namespace lft::llama {

LlamaMlpImpl::LlamaMlpImpl(const LlamaConfig& config, int64_t intermediate,
                           at::TensorOptions linear_options)
    : gate_(config.activation == "silu" ? ops::Gate::kSilu : ops::Gate::kGelu) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, layers::Linear(in, out, config.mlp_bias, linear_options));
  };
  gate_proj = linear("gate_proj", config.hidden, intermediate);
  up_proj = linear("up_proj", config.hidden, intermediate);
  down_proj = linear("down_proj", intermediate, config.hidden);
}

at::Tensor LlamaMlpImpl::forward(const ops::Normed& input) {
  const at::Tensor& x = input.y;
  expect_last_dim(x, "x", {"d", gate_proj->weight.size(1)});
  const layers::LinearGroup group({gate_proj, up_proj}, input);
  const at::Tensor gate = call("gate_proj", group[0], x), up = call("up_proj", group[1], x);
  return call("down_proj", down_proj, gate, up, gate_);
}

}  // namespace lft::llama
