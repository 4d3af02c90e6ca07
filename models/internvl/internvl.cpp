#include "models/internvl/internvl.h"

#include "models/base/call.h"
#include "models/layers/pixel_shuffle.h"
#include "models/ops/elementwise/activation.h"

namespace lft::internvl {
namespace {

constexpr double kProjectorEps = 1e-5;  // fixed, no file contains it

}  // namespace

ProjectorImpl::ProjectorImpl(const family::ModelConfig& config, at::TensorOptions options)
    : scale_(fields(config).scale), activation_(fields(config).activation) {
  const int64_t merged = fields(config).merged(), hidden = config.text.hidden;
  layer_norm = register_module("layer_norm", layers::LayerNorm(merged, kProjectorEps, options));
  linear_1 = register_module("linear_1", layers::Linear(merged, hidden, true, options));
  linear_2 = register_module("linear_2", layers::Linear(hidden, hidden, true, options));
}

at::Tensor ProjectorImpl::forward(const at::Tensor& features_nsd) {
  const at::Tensor normed =
      call("layer_norm", layer_norm, layers::pixel_shuffle(features_nsd, scale_));
  return call("linear_2", linear_2,
              ops::activation(activation_, call("linear_1", linear_1, normed)));
}

InternVlImpl::InternVlImpl(const family::ModelConfig& config, at::ScalarType dtype,
                           at::Device device, ops::BaseStorage storage)
    : ModelImpl(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  vision_tower = register_module("vision_tower", VisionTower(fields(config), options));
  multi_modal_projector = register_module("multi_modal_projector", Projector(config, options));
  add_decoder(options, storage);
}

family::ImageFeatures InternVlImpl::image_features(const family::Batch& batch) {
  siglip::check_tiles(batch.pixels, fields(config).vision);
  const at::Tensor features = call("vision_tower", vision_tower, batch.pixels.to(device()));
  const at::Tensor projected = call("multi_modal_projector", multi_modal_projector, features);
  return {.features_kd = projected.flatten(0, 1), .deepstack_features_kd = {}};
}

int64_t InternVlImpl::image_positions(const family::ImageShape& image) const {
  return image.tiles * fields(config).tile_positions();
}

}  // namespace lft::internvl
