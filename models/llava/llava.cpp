#include "models/llava/llava.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/family/messages.h"

namespace lft::llava {
namespace {

void check_size(const at::Tensor& pixels_nchw, const clip::ClipConfig& vision) {
  const bool fits = pixels_nchw.dim() == 4 &&
                    pixels_nchw.sizes().slice(1) ==
                        at::IntArrayRef({vision.channels, vision.image_size, vision.image_size});
  if (fits) return;
  const std::string side = std::to_string(vision.image_size);
  throw Error(ErrorKind::kInput, {.what = "an image is not of the model's size",
                                  .where = {},
                                  .found = c10::str(pixels_nchw.sizes()),
                                  .expected = "[images, " + std::to_string(vision.channels) + ", " +
                                              side + ", " + side + "]",
                                  .next = family::kOfThisModel});
}

}  // namespace

LlavaImpl::LlavaImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                     ops::BaseStorage storage)
    : ModelImpl(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  vision_tower = register_module("vision_tower", clip::ClipVision(fields(config).vision, options));
  multi_modal_projector = register_module("multi_modal_projector", Projector(config, options));
  add_decoder(options, storage);
}

family::ImageFeatures LlavaImpl::image_features(const family::Batch& batch) {
  const LlavaFields& own = fields(config);
  check_size(batch.pixels, own.vision);
  std::vector<at::Tensor> features =
      call("vision_tower", vision_tower, batch.pixels.to(device()), own.vision_feature_layers);
  if (!own.select_full) {
    for (at::Tensor& feature : features) feature = feature.narrow(1, 1, feature.size(1) - 1);
  }
  const at::Tensor projected_npd = call("multi_modal_projector", multi_modal_projector,
                                        features.size() == 1 ? features[0] : at::cat(features, -1));
  expect_dims(
      projected_npd, "projected image features",
      {{"n", batch.pixels.size(0)}, {"p", own.image_positions()}, {"d", config.text.hidden}});
  return {.features_kd = projected_npd.flatten(0, 1), .deep_kd = {}};
}

int64_t LlavaImpl::image_positions(const family::ImageShape&) const {
  return fields(config).image_positions();
}

}  // namespace lft::llava
