#include "models/llava/projector.h"

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/ops/elementwise/activation.h"

namespace lft::llava {

ProjectorImpl::ProjectorImpl(const family::ModelConfig& config, at::TensorOptions options)
    : activation_(fields(config).projector_activation) {
  const LlavaFields& own = fields(config);
  const int64_t in = own.vision.hidden * static_cast<int64_t>(own.vision_feature_layers.size()),
                hidden = config.text.hidden;
  linear_1 = register_module("linear_1", layers::Linear(in, hidden, own.projector_bias, options));
  linear_2 =
      register_module("linear_2", layers::Linear(hidden, hidden, own.projector_bias, options));
}

at::Tensor ProjectorImpl::forward(const at::Tensor& features_npd) {
  expect_dims(features_npd, "image features", {{"n"}, {"p"}, {"d", linear_1->weight.size(1)}});
  return call("linear_2", linear_2,
              ops::activation(activation_, call("linear_1", linear_1, features_npd)));
}

}  // namespace lft::llava
