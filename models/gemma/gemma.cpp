#include "models/gemma/gemma.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/family/messages.h"
#include "models/ops/linear/linear.h"

namespace lft::gemma {
namespace {

void check_images(const at::Tensor& pixels, const clip::ClipConfig& vision) {
  const bool fits = pixels.dim() == 4 &&
                    pixels.sizes().slice(1) ==
                        at::IntArrayRef({vision.channels, vision.image_size, vision.image_size});
  if (fits) return;
  const std::string side = std::to_string(vision.image_size);
  throw Error(ErrorKind::kInput, {.what = "an image is not of the model's size",
                                  .where = {},
                                  .found = c10::str(pixels.sizes()),
                                  .expected = "[images, " + std::to_string(vision.channels) + ", " +
                                              side + ", " + side + "]",
                                  .next = family::kOfThisModel});
}

}  // namespace

ProjectorImpl::ProjectorImpl(const family::ModelConfig& config, at::TensorOptions options)
    : grid_(fields(config).vision.grid()), pool_(fields(config).pool()) {
  const clip::ClipConfig& vision = fields(config).vision;
  mm_soft_emb_norm = register_module(
      "mm_soft_emb_norm",
      layers::RmsNorm(vision.hidden, vision.layer_norm_eps, options, /*adds_one=*/true));
  mm_input_projection_weight = register_parameter(
      "mm_input_projection_weight", at::empty({vision.hidden, config.text.hidden}, options), false);
}

at::Tensor ProjectorImpl::forward(const at::Tensor& features_nsd) {
  expect_dims(features_nsd, "image features",
              {{"n"}, {"s", grid_ * grid_}, {"d", mm_input_projection_weight.size(0)}});
  const int64_t images = features_nsd.size(0), d = features_nsd.size(2), side = grid_ / pool_;
  // [n, rows, pool, columns, pool, d]: the patches of a position.
  const at::Tensor pooled = features_nsd.reshape({images, side, pool_, side, pool_, d})
                                .mean(at::IntArrayRef({2, 4}))
                                .reshape({images, side * side, d});
  return ops::linear(call("mm_soft_emb_norm", mm_soft_emb_norm, pooled),
                     mm_input_projection_weight.t(), at::Tensor());
}

GemmaImpl::GemmaImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                     ops::BaseStorage storage)
    : ModelImpl(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  const GemmaFields& own = fields(config);
  vision_tower =
      register_module("vision_tower", siglip::SiglipTower(own.vision, options, own.vision_head));
  multi_modal_projector = register_module("multi_modal_projector", Projector(config, options));
  add_decoder(options, storage);
}

family::ImageFeatures GemmaImpl::image_features(const family::Batch& batch) {
  check_images(batch.pixels, fields(config).vision);
  const at::Tensor features = call("vision_tower", vision_tower, batch.pixels.to(device()));
  const at::Tensor projected = call("multi_modal_projector", multi_modal_projector, features);
  return {.features_kd = projected.flatten(0, 1), .deepstack_features_kd = {}};
}

int64_t GemmaImpl::image_positions(const family::ImageShape&) const {
  return fields(config).image_positions();
}

}  // namespace lft::gemma
