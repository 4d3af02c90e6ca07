#include "models/siglip/siglip.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/family/messages.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/linear/linear.h"

namespace lft::siglip {

at::Tensor bucketed_positions(int64_t grid) {
  const double one = 1.0 / static_cast<double>(grid);
  const at::Tensor boundaries = at::arange(one, 1.0, one, at::kFloat);
  const at::Tensor step = at::full({}, 1.0f / static_cast<float>(grid), at::kFloat);
  const at::Tensor fractions =
      (at::arange(0, grid, at::kLong).to(at::kFloat) * step).clamp_max(1.0 - 1e-6);
  const at::Tensor buckets =
      at::bucketize(fractions, boundaries, /*out_int32=*/false, /*right=*/true);
  return (buckets.unsqueeze(1) * grid + buckets.unsqueeze(0)).flatten();
}

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

SiglipPatchEmbeddingImpl::SiglipPatchEmbeddingImpl(const clip::ClipConfig& config,
                                                   at::TensorOptions options) {
  const std::vector<int64_t> shape = {config.hidden, config.channels, config.patch_size,
                                      config.patch_size};
  weight = register_parameter("weight", at::empty(shape, options), /*requires_grad=*/false);
  bias = register_parameter("bias", at::empty({config.hidden}, options), /*requires_grad=*/false);
}

at::Tensor SiglipPatchEmbeddingImpl::forward(const at::Tensor& pixels_nchw) {
  expect_dims(pixels_nchw, "pixels", {{"n"}, {"c", weight.size(1)}, {"h"}, {"w"}});
  const int64_t tiles = pixels_nchw.size(0), channels = pixels_nchw.size(1), patch = weight.size(2);
  const int64_t rows = pixels_nchw.size(2) / patch, columns = pixels_nchw.size(3) / patch;
  const at::Tensor whole = pixels_nchw.narrow(2, 0, rows * patch)
                               .narrow(3, 0, columns * patch);  // a convolution ignores the rest
  const at::Tensor patches =
      whole.reshape({tiles, channels, rows, patch, columns, patch}).permute({0, 2, 4, 1, 3, 5});
  return ops::linear(patches.reshape({tiles, rows * columns, channels * patch * patch}),
                     weight.flatten(1), bias);
}

SiglipEmbeddingsImpl::SiglipEmbeddingsImpl(const clip::ClipConfig& config,
                                           at::TensorOptions options, Places places)
    : ids_s_(places == Places::kBucketed ? bucketed_positions(config.grid())
                                         : at::arange(config.grid() * config.grid(), at::kLong)) {
  patch_embedding = register_module("patch_embedding", SiglipPatchEmbedding(config, options));
  position_embedding =
      register_module("position_embedding",
                      layers::Embedding(config.grid() * config.grid(), config.hidden, options));
}

at::Tensor SiglipEmbeddingsImpl::forward(const at::Tensor& pixels_nchw) {
  const at::Tensor patches = call("patch_embedding", patch_embedding, pixels_nchw);
  const at::Tensor& positions = position_embedding->weight;
  expect_dims(patches, "patches",
              {{"n", pixels_nchw.size(0)}, {"s", positions.size(0)}, {"d", positions.size(1)}});
  // Copied once, in the first pass: host memory must not be read during CUDA graph capture.
  if (ids_s_.device() != positions.device())
    ids_s_ = ops::copy_to_device(ids_s_, positions.device());
  return patches + call("position_embedding", position_embedding, ids_s_);
}

SiglipHeadImpl::SiglipHeadImpl(const clip::ClipConfig& config, at::TensorOptions options) {
  const int64_t d = config.hidden;
  register_parameter("probe", at::empty({1, 1, d}, options), /*requires_grad=*/false);
  const auto attention = register_module("attention", std::make_shared<torch::nn::Module>());
  attention->register_parameter("in_proj_weight", at::empty({3 * d, d}, options), false);
  attention->register_parameter("in_proj_bias", at::empty({3 * d}, options), false);
  attention->register_module("out_proj", layers::Linear(d, d, true, options).ptr());
  register_module("layernorm", layers::LayerNorm(d, config.layer_norm_eps, options));
  register_module("mlp", clip::ClipMlp(config, options));
}

SiglipVisionImpl::SiglipVisionImpl(const clip::ClipConfig& config, at::TensorOptions options,
                                   Places places, bool has_head)
    : layers_(config.layers) {
  embeddings = register_module("embeddings", SiglipEmbeddings(config, options, places));
  encoder = register_module("encoder", clip::ClipEncoder(config, options));
  post_layernorm = register_module(
      "post_layernorm", layers::LayerNorm(config.hidden, config.layer_norm_eps, options));
  if (has_head) register_module("head", SiglipHead(config, options));
}

at::Tensor SiglipVisionImpl::forward(const at::Tensor& pixels_nchw) {
  const at::Tensor x = call("embeddings", embeddings, pixels_nchw);
  const std::vector<int64_t> last = {layers_};
  return call("post_layernorm", post_layernorm, call("encoder", encoder, x, last).front());
}

std::vector<at::Tensor> SiglipVisionImpl::forward(const at::Tensor& pixels_nchw,
                                                  const std::vector<int64_t>& feature_layers) {
  return call("encoder", encoder, call("embeddings", embeddings, pixels_nchw), feature_layers);
}

SiglipTowerImpl::SiglipTowerImpl(const clip::ClipConfig& config, at::TensorOptions options,
                                 bool has_head)
    : layers_(config.layers) {
  vision_model =
      register_module("vision_model", SiglipVision(config, options, Places::kRowByRow, has_head));
}

at::Tensor SiglipTowerImpl::forward(const at::Tensor& pixels_nchw) {
  return call("vision_model", vision_model, pixels_nchw);
}

std::vector<at::Tensor> SiglipTowerImpl::forward(const at::Tensor& pixels_nchw,
                                                 const std::vector<int64_t>& feature_layers) {
  std::vector<int64_t> from_start = feature_layers;
  for (int64_t& layer : from_start) layer += layer < 0 ? layers_ + 1 : 0;
  return call("vision_model", vision_model, pixels_nchw, from_start);
}

}  // namespace lft::siglip
