#include "models/family/model.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/family/embedding_noise.h"
#include "models/family/messages.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/precision.h"

namespace lft::family {
namespace {

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

/// The index of the run of image positions that each position is in; -1: in none. int64 [b, t].
at::Tensor image_blocks(const at::Tensor& is_image_bt) {
  const at::Tensor image = is_image_bt.to(at::kLong);
  const at::Tensor begins = image.diff(1, 1, at::zeros({image.size(0), 1}, at::kLong)) > 0;
  return at::where(is_image_bt, begins.cumsum(1) - 1, -1);
}

/// The position of the token after each row, minus the row's length.
std::vector<int64_t> offsets_after(const at::Tensor& positions_3bt,
                                   const std::vector<int64_t>& lengths) {
  const at::Tensor most_bt = positions_3bt.amax(0).cpu();
  std::vector<int64_t> offsets;
  for (size_t row = 0; row < lengths.size(); ++row) {
    const at::Tensor of_row = most_bt[static_cast<int64_t>(row)].narrow(0, 0, lengths[row]);
    offsets.push_back(of_row.max().item<int64_t>() + 1 - lengths[row]);
  }
  return offsets;
}

}  // namespace

ImageFeatures join_features(const std::vector<ImageFeatures>& parts) {
  if (parts.empty()) return {};
  if (parts.size() == 1) return parts.front();
  std::vector<at::Tensor> features;
  std::vector<std::vector<at::Tensor>> deep(parts.front().deepstack_features_kd.size());
  for (const ImageFeatures& part : parts) {
    features.push_back(part.features_kd);
    for (size_t layer = 0; layer < deep.size(); ++layer)
      deep[layer].push_back(part.deepstack_features_kd.at(layer));
  }
  ImageFeatures all{.features_kd = at::cat(features), .deepstack_features_kd = {}};
  for (const std::vector<at::Tensor>& layer : deep)
    all.deepstack_features_kd.push_back(at::cat(layer));
  return all;
}

ImageFeatures ModelImpl::features(const Batch& batch) {
  return feature_source ? feature_source->features(*this, batch) : image_features(batch);
}

KeptCost ModelImpl::kept_features() const {
  return feature_source ? feature_source->kept() : KeptCost{};
}

ImageFeatures ModelImpl::shown_features(const Batch& batch) {
  ImageFeatures found = features(batch);
  if (batch.shown.empty()) return found;
  std::vector<int64_t> starts = {0};
  for (const ImageShape& image : image_shapes(batch))
    starts.push_back(starts.back() + image_positions(image));
  const auto in_order = [&](const at::Tensor& features_kd) {
    std::vector<at::Tensor> parts;
    for (const int64_t image : batch.shown) {
      const int64_t from = starts.at(static_cast<size_t>(image));
      parts.push_back(
          features_kd.narrow(0, from, starts.at(static_cast<size_t>(image) + 1) - from));
    }
    return at::cat(parts);
  };
  found.features_kd = in_order(found.features_kd);
  for (at::Tensor& layer : found.deepstack_features_kd) layer = in_order(layer);
  return found;
}

ModelImpl::ModelImpl(const ModelConfig& config) : config(config) {}

void ModelImpl::add_decoder(at::TensorOptions options, ops::BaseStorage storage) {
  const at::TensorOptions linears =
      storage == ops::BaseStorage::kDense ? options : options.device(at::kMeta);
  language_model =
      register_module("language_model", llama::LlamaForCausalLm(config.text, options, linears));
  for (const std::shared_ptr<torch::nn::Module>& module : language_model->modules()) {
    if (auto* linear = module->as<layers::LinearImpl>()) linear->hold_bias(options.device());
  }
}

at::Device ModelImpl::device() const {
  return language_model->model->embed_tokens->weight.device();
}

at::Tensor ModelImpl::positions(const Batch&) const { return {}; }

llama::DecoderInput ModelImpl::embed(const Batch& batch, const ImageFeatures* known) {
  expect_dims(batch.input_ids_bt, "input_ids", {{"b"}, {"t"}});
  const at::Tensor is_image = batch.input_ids_bt == config.image_token;
  const at::Tensor ids = batch.input_ids_bt.masked_fill(
      is_image, 0);  // the token's own embedding is not used and may not exist
  check_ids(ids, config.text.vocab);
  const at::Tensor places = is_image.flatten().nonzero().squeeze(1);
  const std::vector<ImageShape> images = shown_shapes(batch);
  int64_t expected = 0;
  for (const ImageShape& image : images) expected += image_positions(image);
  if (places.numel() != expected) {
    throw Error(ErrorKind::kInput,
                {.what = "image positions and image features differ in number",
                 .where = {},
                 .found = std::to_string(places.numel()) + " image positions for " +
                          std::to_string(images.size()) + " images",
                 .expected = std::to_string(expected) + " image positions",
                 .next = kOfThisModel});
  }
  llama::DecoderInput input;
  input.packed = batch.packed;
  for (int64_t row = 0; batch.lengths_b.defined() && row < batch.lengths_b.size(0); ++row)
    input.lengths.push_back(batch.lengths_b[row].item<int64_t>());
  if (const at::Tensor given = positions(batch); given.defined())
    input.positions_3bt = ops::copy_to_device(given, device());
  at::Tensor embeds = call("language_model.model.embed_tokens", language_model->model->embed_tokens,
                           ops::copy_to_device(ids, device()));
  if (neftune_alpha > 0 && ops::dropout_position() != nullptr)
    embeds = embeds + embedding_noise(batch, embeds, neftune_alpha);
  input.embeds_btd = embeds;
  if (images.empty()) return input;
  if (config.text.image_blocks) input.blocks_bt = image_blocks(is_image);
  const ImageFeatures found = known != nullptr ? *known : shown_features(batch);
  expect_dims(found.features_kd, "projected image features",
              {{"k", expected}, {"d", embeds.size(2)}});
  input.deepstack_features_kd = found.deepstack_features_kd;
  input.deep_places_k = ops::copy_to_device(places, device());
  input.embeds_btd =
      embeds.flatten(0, 1)
          .index_copy(0, input.deep_places_k, found.features_kd.to(embeds.scalar_type()))
          .view(embeds.sizes());
  return input;
}
at::Tensor ModelImpl::supervised_logprobs(const Batch& batch) {
  expect_dims(batch.input_ids_bt, "input_ids", {{"b"}, {"t"}});
  expect_dims(batch.labels_bt, "labels",
              {{"b", batch.input_ids_bt.size(0)}, {"t", batch.input_ids_bt.size(1)}});
  const SupervisedRows supervised = supervised_rows(batch.labels_bt, config.text.vocab);
  if (supervised.rows_k.numel() == 0)
    return at::zeros({0}, at::TensorOptions().dtype(at::kFloat).device(device()));
  return logprobs_after(embed(batch), ops::copy_to_device(supervised.rows_k, device()),
                        ops::copy_to_device(supervised.targets_k, device()));
}

at::Tensor ModelImpl::logprobs_after(const llama::DecoderInput& input, const at::Tensor& rows_k,
                                     const at::Tensor& targets_k) {
  llama::KvCache* no_cache = nullptr;
  return call("language_model", language_model, input, rows_k, targets_k, no_cache);
}

at::Tensor ModelImpl::next_logits(const Batch& batch, llama::KvCache& cache,
                                  const ImageFeatures* known) {
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
  const llama::DecoderInput input = embed(batch, known);
  if (first && input.positions_3bt.defined())
    cache.offsets = offsets_after(input.positions_3bt, cache.lengths);
  at::Tensor rows = at::arange(b, at::kLong) * t;
  if (first) rows = rows + at::tensor(cache.lengths, at::kLong) - 1;
  const at::Tensor logits =
      call("language_model", language_model, input, rows.to(device()), at::Tensor(), &cache);
  if (!first) {
    for (int64_t& length : cache.lengths) ++length;
  }
  return logits;
}

ScoredRows ModelImpl::score_and_begin(const Batch& batch, const std::vector<int64_t>& prompts,
                                      llama::KvCache& cache, const ImageFeatures* known) {
  const SupervisedRows supervised = supervised_rows(batch.labels_bt, config.text.vocab);
  const int64_t b = batch.input_ids_bt.size(0), t = batch.input_ids_bt.size(1),
                k = supervised.rows_k.size(0);
  const llama::DecoderInput input = embed(batch, known);
  cache.lengths = prompts;
  if (input.positions_3bt.defined())
    cache.offsets = offsets_after(input.positions_3bt, cache.lengths);
  const at::Tensor ends = at::arange(b, at::kLong) * t + at::tensor(prompts, at::kLong) - 1;
  const at::Tensor rows = ops::copy_to_device(at::cat({supervised.rows_k, ends}), device());
  const at::Tensor hidden =
      call("language_model.model", language_model->model, input, rows, &cache);
  llama::clear_after_lengths(cache);
  return {.logprobs_k =
              k == 0 ? at::zeros({0}, at::TensorOptions().dtype(at::kFloat))
                     : language_model->head(hidden.narrow(0, 0, k),
                                            ops::copy_to_device(supervised.targets_k, device())),
          .logits_bv = language_model->head(hidden.narrow(0, k, b), at::Tensor())};
}

bool ModelImpl::is_causal() const {
  return config.text.recurrent.empty() && !config.text.rope_scaling.follows_length() &&
         !config.text.local_rope_scaling.follows_length();
}

at::Tensor ModelImpl::all_logits(const Batch& batch) {
  llama::KvCache* no_cache = nullptr;
  return call("language_model", language_model, embed(batch), at::Tensor(), at::Tensor(), no_cache);
}

}  // namespace lft::family
