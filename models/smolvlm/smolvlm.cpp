#include "models/smolvlm/smolvlm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/family/messages.h"

namespace lft::smolvlm {
namespace {

void check_tiles(const at::Tensor& pixels, const clip::ClipConfig& vision) {
  const bool fits = pixels.dim() == 4 &&
                    pixels.sizes().slice(1) ==
                        at::IntArrayRef({vision.channels, vision.image_size, vision.image_size});
  if (fits) return;
  const std::string side = std::to_string(vision.image_size);
  throw Error(ErrorKind::kInput, {.what = "a tile of an image is not of the model's size",
                                  .where = {},
                                  .found = c10::str(pixels.sizes()),
                                  .expected = "[tiles, " + std::to_string(vision.channels) + ", " +
                                              side + ", " + side + "]",
                                  .next = family::kOfThisModel});
}

}  // namespace

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
  expect_dims(features_nsd, "image features", {{"n"}, {"s"}, {"d"}});
  const int64_t tiles = features_nsd.size(0), d = features_nsd.size(2);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(features_nsd.size(1)))),
             fewer = side / scale_;
  // [n, rows, scale, columns, scale, d]: the patches of a position are in row-major order.
  const at::Tensor together = features_nsd.reshape({tiles, fewer, scale_, fewer, scale_, d})
                                  .permute({0, 1, 3, 2, 4, 5})
                                  .reshape({tiles, fewer * fewer, scale_ * scale_ * d});
  return call("modality_projection", modality_projection, together);
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
  check_tiles(batch.pixels, fields(config).vision);
  const at::Tensor features = call("vision_tower", vision_tower, batch.pixels.to(device()));
  const at::Tensor projected = call("multi_modal_projector", multi_modal_projector, features);
  return {.features_kd = projected.flatten(0, 1), .deepstack_features_kd = {}};
}

int64_t SmolVlmImpl::image_positions(const family::ImageShape& image) const {
  return image.tiles * fields(config).tile_positions();
}

}  // namespace lft::smolvlm
