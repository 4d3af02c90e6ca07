#include "models/llava/projector.h"

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/ops/elementwise/activation.h"

namespace lft::llava {

ProjectorImpl::ProjectorImpl(const LlavaConfig& config, at::TensorOptions options)
    : activation_(config.projector_activation) {
  const int64_t in =
      config.vision.hidden * static_cast<int64_t>(config.vision_feature_layers.size());
  linear_1 = register_module(
      "linear_1", layers::Linear(in, config.text.hidden, config.projector_bias, options));
  linear_2 = register_module("linear_2", layers::Linear(config.text.hidden, config.text.hidden,
                                                        config.projector_bias, options));
}

at::Tensor ProjectorImpl::forward(const at::Tensor& features_npd) {
  expect_dims(features_npd, "image features", {{"n"}, {"p"}, {"d", linear_1->weight.size(1)}});
  return call("linear_2", linear_2,
              ops::activation(activation_, call("linear_1", linear_1, features_npd)));
}

}  // namespace lft::llava
