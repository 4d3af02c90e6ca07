#include "models/qwen_vl/merger.h"

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/ops/elementwise/activation.h"

namespace lft::qwen_vl {

MergerMlpImpl::MergerMlpImpl(const VisionConfig& config, at::TensorOptions options) {
  const int64_t merged = config.merged();
  first = register_module("0", layers::Linear(merged, merged, true, options));
  second = register_module("2", layers::Linear(merged, config.out, true, options));
}

at::Tensor MergerMlpImpl::forward(const at::Tensor& x) {
  return call("2", second, ops::activation("gelu", call("0", first, x)));
}

PatchMergerImpl::PatchMergerImpl(const VisionConfig& config, at::TensorOptions options, bool after)
    : merged_(config.merged()), after_(after) {
  const bool old = !config.deep();
  norm.make(*this, old ? "ln_q" : "norm", config.gated(), after ? merged_ : config.hidden, kNormEps,
            options);
  if (old) {
    mlp = register_module("mlp", MergerMlp(config, options));
    return;
  }
  linear_fc1 = register_module("linear_fc1", layers::Linear(merged_, merged_, true, options));
  linear_fc2 = register_module("linear_fc2", layers::Linear(merged_, config.out, true, options));
}

at::Tensor PatchMergerImpl::forward(const at::Tensor& x_sd) {
  const auto merged = [this](const at::Tensor& x) { return x.reshape({-1, merged_}); };
  if (mlp) return call("mlp", mlp, merged(norm.run("ln_q", x_sd)));
  const at::Tensor x = after_ ? norm.run("norm", merged(x_sd)) : merged(norm.run("norm", x_sd));
  return call("linear_fc2", linear_fc2, ops::activation("gelu", call("linear_fc1", linear_fc1, x)));
}

ProjectorImpl::ProjectorImpl(const VisionConfig& config, at::TensorOptions options) {
  merger = register_module("merger", PatchMerger(config, options, /*after=*/false));
  if (!config.deep() || config.deep_blocks.empty()) return;
  deepstack_merger_list =
      register_module("deepstack_merger_list", std::make_shared<layers::StackImpl<PatchMerger>>());
  for (size_t i = 0; i < config.deep_blocks.size(); ++i)
    deepstack_merger_list->push_back(PatchMerger(config, options, /*after=*/true));
}

std::vector<at::Tensor> ProjectorImpl::forward(const std::vector<at::Tensor>& states_sd) {
  std::vector<at::Tensor> features = {call("merger", merger, states_sd.at(0))};
  for (size_t i = 1; i < states_sd.size(); ++i) {
    const auto number = static_cast<int64_t>(i - 1);
    features.push_back(call_indexed("deepstack_merger_list", number,
                                    (*deepstack_merger_list)[number], states_sd[i]));
  }
  return features;
}

}  // namespace lft::qwen_vl
