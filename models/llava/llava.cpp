#include "models/llava/llava.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/llava/embedding_noise.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/precision.h"

namespace lft::llava {
namespace {

/// Rows and prepared data are checked when they are read: only other batches get here.
constexpr char kOfThisModel[] =
    "encode the data with this model's tokenizer and processor (lft prepare)";

void check_ids(const at::Tensor& ids_bt, int64_t vocab) {
  if (ids_bt.numel() == 0) return;
  const auto low = ids_bt.min().item<int64_t>(), high = ids_bt.max().item<int64_t>();
  if (low >= 0 && high < vocab) return;
  throw Error(ErrorKind::kInput, {.what = "a token id is outside the model's vocabulary",
                                  .where = {},
                                  .found = std::to_string(low < 0 ? low : high),
                                  .expected = "an id in [0, " + std::to_string(vocab) + ")",
                                  .next = kOfThisModel});
}

}  // namespace

SupervisedRows supervised_rows(const at::Tensor& labels_bt, int64_t vocab) {
  const int64_t t = labels_bt.size(1);
  const at::Tensor next = labels_bt.narrow(1, 1, t - 1);
  const at::Tensor found = (next != -100).nonzero();  // row-major
  const at::Tensor b = found.select(1, 0), position = found.select(1, 1);
  const at::Tensor targets = next.index({b, position});
  if (targets.numel() > 0) {
    const auto low = targets.min().item<int64_t>(), high = targets.max().item<int64_t>();
    if (low < 0 || high >= vocab) {
      throw Error(ErrorKind::kInput,
                  {.what = "a label is not a token of the model",
                   .where = {},
                   .found = std::to_string(low < 0 ? low : high),
                   .expected = "-100 or a token id in [0, " + std::to_string(vocab) + ")",
                   .next = kOfThisModel});
    }
  }
  return {b * t + position, targets};
}

LlavaImpl::LlavaImpl(const LlavaConfig& config, at::ScalarType dtype, at::Device device,
                     ops::BaseStorage storage)
    : config(config) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device);
  vision_tower = register_module("vision_tower", clip::ClipVision(config.vision, options));
  multi_modal_projector = register_module("multi_modal_projector", Projector(config, options));
  const at::TensorOptions linears =
      storage == ops::BaseStorage::kDense ? options : options.device(at::kMeta);
  language_model =
      register_module("language_model", llama::LlamaForCausalLm(config.text, options, linears));
}

at::Tensor LlavaImpl::image_features(const at::Tensor& pixels_nchw) {
  const clip::ClipConfig& vision = config.vision;
  if (pixels_nchw.dim() != 4 ||
      pixels_nchw.sizes().slice(1) !=
          at::IntArrayRef({vision.channels, vision.image_size, vision.image_size})) {
    const std::string side = std::to_string(vision.image_size);
    throw Error(ErrorKind::kInput, {.what = "an image is not of the model's size",
                                    .where = {},
                                    .found = c10::str(pixels_nchw.sizes()),
                                    .expected = "[images, " + std::to_string(vision.channels) +
                                                ", " + side + ", " + side + "]",
                                    .next = kOfThisModel});
  }
  const at::Tensor pixels = pixels_nchw.to(language_model->model->embed_tokens->weight.device());
  std::vector<at::Tensor> features =
      call("vision_tower", vision_tower, pixels, config.vision_feature_layers);
  if (!config.select_full) {
    for (at::Tensor& feature : features) feature = feature.narrow(1, 1, feature.size(1) - 1);
  }
  return call("multi_modal_projector", multi_modal_projector,
              features.size() == 1 ? features[0] : at::cat(features, -1));
}

at::Tensor LlavaImpl::embed(const LlavaBatch& batch, const at::Tensor& features_npd) {
  expect_dims(batch.input_ids_bt, "input_ids", {{"b"}, {"t"}});
  const at::Tensor is_image = batch.input_ids_bt == config.image_token;
  const at::Tensor ids = batch.input_ids_bt.masked_fill(
      is_image, 0);  // its own embedding is not used, and need not exist
  check_ids(ids, config.text.vocab);
  const at::Tensor places = is_image.flatten().nonzero().squeeze(1);
  const int64_t images = batch.pixels_nchw.defined() ? batch.pixels_nchw.size(0) : 0;
  if (places.numel() != images * config.image_positions()) {
    throw Error(ErrorKind::kInput,
                {.what = "image positions and image features differ in number",
                 .where = {},
                 .found = std::to_string(places.numel()) + " image positions for " +
                          std::to_string(images) + " images",
                 .expected = std::to_string(config.image_positions()) + " positions an image",
                 .next = kOfThisModel});
  }
  const at::Device device = language_model->model->embed_tokens->weight.device();
  at::Tensor embeds = call("language_model.model.embed_tokens", language_model->model->embed_tokens,
                           ops::copy_to_device(ids, device));
  if (neftune_alpha > 0 && ops::dropout_position() != nullptr)
    embeds = embeds + embedding_noise(batch, embeds, neftune_alpha);
  if (images == 0) return embeds;
  const at::Tensor features =
      features_npd.defined() ? features_npd : image_features(batch.pixels_nchw);
  expect_dims(features, "projected image features",
              {{"n", images}, {"p", config.image_positions()}, {"d", embeds.size(2)}});
  return embeds.flatten(0, 1)
      .index_copy(0, ops::copy_to_device(places, device),
                  features.flatten(0, 1).to(embeds.scalar_type()))
      .view(embeds.sizes());
}

at::Tensor LlavaImpl::supervised_logprobs(const LlavaBatch& batch) {
  expect_dims(batch.input_ids_bt, "input_ids", {{"b"}, {"t"}});
  expect_dims(batch.labels_bt, "labels",
              {{"b", batch.input_ids_bt.size(0)}, {"t", batch.input_ids_bt.size(1)}});
  const SupervisedRows supervised = supervised_rows(batch.labels_bt, config.text.vocab);
  const at::Device device = language_model->model->embed_tokens->weight.device();
  if (supervised.rows_k.numel() == 0)
    return at::zeros({0}, at::TensorOptions().dtype(at::kFloat).device(device));
  return logprobs_behind(embed(batch), ops::copy_to_device(supervised.rows_k, device),
                         ops::copy_to_device(supervised.targets_k, device), batch.packed);
}

at::Tensor LlavaImpl::logprobs_behind(const at::Tensor& embeds_btd, const at::Tensor& rows_k,
                                      const at::Tensor& targets_k,
                                      std::shared_ptr<const ops::PackedSequences> packed) {
  llama::KvCache* no_cache = nullptr;
  return call("language_model", language_model, embeds_btd, rows_k, targets_k, no_cache,
              std::move(packed));
}

at::Tensor LlavaImpl::loss_sum(const LlavaBatch& batch) {
  const at::Tensor logprobs = supervised_logprobs(batch);
  return logprobs.numel() == 0 ? at::zeros({}, logprobs.options()) : -logprobs.sum();
}

at::Tensor LlavaImpl::next_logits(const LlavaBatch& batch, llama::KvCache& cache) {
  const int64_t b = batch.input_ids_bt.size(0), t = batch.input_ids_bt.size(1);
  const bool first = cache.empty();
  if (!first && (t != 1 || b != static_cast<int64_t>(cache.lengths.size()))) {
    throw Error(ErrorKind::kInternal, "a filled cache takes one new token for each of its rows");
  }
  if (first) {
    cache.lengths.assign(static_cast<size_t>(b), t);
    for (int64_t row = 0; batch.lengths_b.defined() && row < b; ++row) {
      cache.lengths[static_cast<size_t>(row)] = batch.lengths_b[row].item<int64_t>();
    }
  }
  const at::Tensor embeds = embed(batch);
  at::Tensor rows = at::arange(b, at::kLong) * t;
  if (first) rows = rows + at::tensor(cache.lengths, at::kLong) - 1;
  const at::Tensor logits = call("language_model", language_model, embeds, rows.to(embeds.device()),
                                 at::Tensor(), &cache);
  if (!first) {
    for (int64_t& length : cache.lengths) ++length;
  }
  return logits;
}

at::Tensor LlavaImpl::all_logits(const LlavaBatch& batch) {
  llama::KvCache* no_cache = nullptr;
  return call("language_model", language_model, embed(batch), at::Tensor(), at::Tensor(), no_cache,
              batch.packed);
}

}  // namespace lft::llava
