#include "models/smolvlm/smolvlm.h"

#include "models/base/call.h"
#include "models/layers/pixel_shuffle.h"

namespace lft::smolvlm {

ProjectionImpl::ProjectionImpl(const family::ModelConfig& config, at::TensorOptions options) {
  const SmolVlmFields& own = fields(config);
  proj = register_module("proj", layers::Linear(own.vision.hidden * own.scale * own.scale,
                                                config.text.hidden, false, options));
}

at::Tensor ProjectionImpl::forward(const at::Tensor& x) { return call("proj", proj, x); }

ConnectorImpl::ConnectorImpl(const family::ModelConfig& config, at::TensorOptions options)
    : scale_(fields(config).scale) {
  modality_projection = register_module("modality_projection", Projection(config, options));
}

at::Tensor ConnectorImpl::forward(const at::Tensor& features_nsd) {
  return call("modality_projection", modality_projection,
              layers::pixel_shuffle(features_nsd, scale_));
}

SmolVlmImpl::SmolVlmImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                         ops::BaseStorage storage)
    : ModelImpl(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  vision_tower = register_module(
      "vision_tower", siglip::SiglipVision(fields(config).vision, options,
                                           siglip::Places::kBucketed, /*has_head=*/false));
  multi_modal_projector = register_module("multi_modal_projector", Connector(config, options));
  add_decoder(options, storage);
}

family::ImageFeatures SmolVlmImpl::image_features(const family::Batch& batch) {
  siglip::check_tiles(batch.pixels, fields(config).vision);
  const at::Tensor features = call("vision_tower", vision_tower, batch.pixels.to(device()));
  const at::Tensor projected = call("multi_modal_projector", multi_modal_projector, features);
  return {.features_kd = projected.flatten(0, 1), .deepstack_features_kd = {}};
}

int64_t SmolVlmImpl::image_positions(const family::ImageShape& image) const {
  return image.tiles * fields(config).tile_positions();
}

}  // namespace lft::smolvlm
