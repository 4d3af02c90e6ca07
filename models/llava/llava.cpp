#include "models/llava/llava.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/family/messages.h"
#include "models/llava/anyres.h"

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

/// Bilinear weights [to, from] of one axis, half-pixel centres (align_corners=False): a position i
/// of the result is at (i + 0.5) from / to - 0.5, between its two neighbours.
at::Tensor bilinear_weights(int64_t to, int64_t from, at::Device device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const at::Tensor at =
      ((at::arange(to, options) + 0.5) * scale - 0.5).clamp(0, static_cast<double>(from - 1));
  const at::Tensor distance = at.unsqueeze(1) - at::arange(from, options);
  return at::minimum(1 - distance, 1 + distance).clamp_min(0);  // abs() has no meta kernel
}

/// Bilinear interpolation of x [h, w, d] as two matrix products in float32: the gradient of
/// upsample_bilinear2d is not deterministic on CUDA.
at::Tensor resized(const at::Tensor& x_hwd, const image::Size& to) {
  const int64_t h = x_hwd.size(0), w = x_hwd.size(1), d = x_hwd.size(2);
  const at::Tensor rows = at::mm(bilinear_weights(to.height, h, x_hwd.device()),
                                 x_hwd.to(at::kFloat).reshape({h, w * d}))
                              .view({to.height, w, d});
  return at::matmul(bilinear_weights(to.width, w, x_hwd.device()), rows).to(x_hwd.scalar_type());
}

}  // namespace

LlavaImpl::LlavaImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
                     ops::BaseStorage storage)
    : ModelImpl(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  const LlavaFields& own = fields(config);
  if (own.siglip) {
    siglip_tower =
        register_module("vision_tower", siglip::SiglipTower(own.vision, options, own.siglip_head));
  } else {
    vision_tower = register_module("vision_tower", clip::ClipVision(own.vision, options));
  }
  multi_modal_projector = register_module("multi_modal_projector", Projector(config, options));
  if (own.kind != Kind::kLlava)
    image_newline = register_parameter("image_newline", at::empty({config.text.hidden}, options),
                                       /*requires_grad=*/false);
  add_decoder(options, storage);
}

std::vector<at::Tensor> LlavaImpl::tower_features(const at::Tensor& pixels_nchw) {
  const std::vector<int64_t>& layers = fields(config).vision_feature_layers;
  return siglip_tower ? call("vision_tower", siglip_tower, pixels_nchw, layers)
                      : call("vision_tower", vision_tower, pixels_nchw, layers);
}

at::Tensor LlavaImpl::joined_tiles(const at::Tensor& tiles_npd,
                                   const family::ImageShape& image) const {
  const LlavaFields& own = fields(config);
  const at::Tensor newline = image_newline.to(tiles_npd.scalar_type());
  if (image.rows == 0) return at::cat({tiles_npd[0], newline.unsqueeze(0)});
  const int64_t grid = own.vision.grid(), d = tiles_npd.size(2);
  const at::Tensor canvas_hwd = tiles_npd.narrow(0, 1, image.rows * image.columns)
                                    .view({image.rows, image.columns, grid, grid, d})
                                    .permute({0, 2, 1, 3, 4})
                                    .reshape({image.rows * grid, image.columns * grid, d});
  const Window window = covered_positions(image.source, {image.columns * grid, image.rows * grid});
  at::Tensor kept_hwd =
      canvas_hwd.narrow(0, window.top, window.height).narrow(1, window.left, window.width);
  const image::Size to = shrunk_positions({window.width, window.height}, grid, own.most_tiles);
  if (to != image::Size{window.width, window.height}) {
    kept_hwd = resized(kept_hwd, to);
  }
  const at::Tensor ends = newline.expand({kept_hwd.size(0), 1, d});
  return at::cat({tiles_npd[0], at::cat({kept_hwd, ends}, 1).flatten(0, 1)});
}

family::ImageFeatures LlavaImpl::image_features(const family::Batch& batch) {
  const LlavaFields& own = fields(config);
  check_size(batch.pixels, own.vision);
  std::vector<at::Tensor> features = tower_features(batch.pixels.to(device()));
  if (!own.select_full) {
    for (at::Tensor& feature : features) feature = feature.narrow(1, 1, feature.size(1) - 1);
  }
  const at::Tensor projected_npd = call("multi_modal_projector", multi_modal_projector,
                                        features.size() == 1 ? features[0] : at::cat(features, -1));
  expect_dims(
      projected_npd, "projected image features",
      {{"n", batch.pixels.size(0)}, {"p", own.tile_positions()}, {"d", config.text.hidden}});
  if (own.kind == Kind::kLlava)
    return {.features_kd = projected_npd.flatten(0, 1), .deepstack_features_kd = {}};
  std::vector<at::Tensor> images;
  int64_t first = 0;
  for (const family::ImageShape& image : family::image_shapes(batch)) {
    images.push_back(joined_tiles(projected_npd.narrow(0, first, image.tiles), image));
    first += image.tiles;
  }
  return {.features_kd = at::cat(images), .deepstack_features_kd = {}};
}

int64_t LlavaImpl::image_positions(const family::ImageShape& image) const {
  return fields(config).image_positions(image);
}

}  // namespace lft::llava
