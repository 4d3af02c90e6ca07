#include "src/cli/merge_probe.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <random>

#include "models/ops/core/few_rows.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/adapter/adapter_tie.h"
#include "src/hf/weights_load.h"

namespace lft::cli {
namespace {

// Three rows are the minimum for few_rows.h.
constexpr int64_t kRowPositions = 10, kImagePositions = 5;

class ProbeMaker {
 public:
  explicit ProbeMaker(const family::ModelConfig& config)
      : config_(config), image_(family::reference_image_plan(config)) {}

  family::Batch text() {
    const int64_t t = std::min(kRowPositions, config_.text.max_positions);
    return batch({row(t, 0), row(t, 0)}, {t, std::max<int64_t>(1, t - 5)}, false);
  }
  family::Batch image() {
    const int64_t left = config_.text.max_positions - image_.positions();
    const int64_t t = image_.positions() + std::min(kRowPositions - kImagePositions, left);
    return batch({row(t, image_.positions())}, {t}, true);
  }
  bool has_room() const { return config_.text.max_positions >= image_.positions() + 2; }

 private:
  /// BOS, the image's positions, then any tokens except the image token.
  std::vector<int64_t> row(int64_t t, int64_t image_positions) {
    std::vector<int64_t> ids = {config_.bos_token};
    ids.insert(ids.end(), image_positions, config_.image_token);
    while (static_cast<int64_t>(ids.size()) < t) {
      const auto id = static_cast<int64_t>(random_() % static_cast<uint64_t>(config_.text.vocab));
      if (id != config_.image_token) ids.push_back(id);
    }
    return ids;
  }

  family::Batch batch(const std::vector<std::vector<int64_t>>& rows,
                      const std::vector<int64_t>& lengths, bool with_image) {
    family::Batch out;
    std::vector<at::Tensor> ids;
    for (const std::vector<int64_t>& row : rows) ids.push_back(at::tensor(row, at::kLong));
    out.input_ids_bt = at::stack(ids);
    out.lengths_b = at::tensor(lengths, at::kLong);
    if (!with_image) return out;
    const family::ImageShape& shape = image_.shape;
    std::vector<float> pixels(static_cast<size_t>(shape.values()));
    for (float& pixel : pixels)
      pixel = static_cast<float>(static_cast<double>(random_() >> 11) * 0x1p-51 - 2.0);
    out.pixels = at::tensor(pixels, at::kFloat).view({shape.tiles, 3, shape.height, shape.width});
    out.images = {shape};
    return out;
  }

  const family::ModelConfig& config_;
  family::ImagePlan image_;
  std::mt19937_64 random_{20231005};  // the same everywhere
};

/// Columns of a batch for the decoder: all of the text, a few of an image.
std::vector<int64_t> kept_columns(const family::Batch& batch, int64_t image_token) {
  const at::Tensor ids = batch.input_ids_bt[0];
  const at::Tensor is_image = ids == image_token;
  const int64_t of_image = is_image.sum().item<int64_t>();
  std::vector<int64_t> columns;
  for (int64_t column = 0, seen = 0; column < ids.numel(); ++column) {
    if (is_image[column].item<bool>()) {
      const int64_t at = seen++ * kImagePositions;  // one for every multiple of of_image
      if (of_image > kImagePositions && at % of_image >= kImagePositions) continue;
    }
    columns.push_back(column);
  }
  return columns;
}

/// The input in these columns only. Rotary angles stay within the same number of positions.
llama::DecoderInput thinned(const llama::DecoderInput& input, const std::vector<int64_t>& columns) {
  const at::Device device = input.embeds_btd.device();
  const at::Tensor kept = at::tensor(columns, at::kLong), on_device = kept.to(device);
  const int64_t t = input.embeds_btd.size(1);
  llama::DecoderInput out = input;
  out.lengths.clear();
  out.embeds_btd = input.embeds_btd.index_select(1, on_device);
  if (input.positions_3bt.defined()) {
    out.positions_3bt = at::minimum(input.positions_3bt.index_select(2, on_device),
                                    at::arange(kept.numel(), on_device.options()));
  }
  if (input.blocks_bt.defined()) out.blocks_bt = input.blocks_bt.index_select(1, kept);
  if (!input.deep_places_k.defined()) return out;
  const at::Tensor places = input.deep_places_k.cpu();
  at::Tensor to = at::full({t}, -1, at::kLong);
  to.index_copy_(0, kept, at::arange(kept.numel(), at::kLong));
  const at::Tensor column = to.index_select(0, places % t);
  const at::Tensor still = (column >= 0).nonzero().squeeze(1);
  const at::Tensor row = at::div(places, t, "floor");
  out.deep_places_k = (row * kept.numel() + column).index_select(0, still).to(device);
  for (at::Tensor& deep : out.deepstack_features_kd) deep = deep.index_select(0, still.to(device));
  return out;
}

/// `values` filled up to t columns of the dimension with columns of `filler`.
at::Tensor padded(const at::Tensor& values, int64_t dim, int64_t t, double filler) {
  std::vector<int64_t> shape = values.sizes().vec();
  shape[static_cast<size_t>(dim)] = t - shape[static_cast<size_t>(dim)];
  return at::cat({values, at::full(shape, filler, values.options())}, dim);
}

/// The input's positions, [3, b, t]; by default the places in the sequence.
at::Tensor positions_of(const llama::DecoderInput& input) {
  if (input.positions_3bt.defined()) return input.positions_3bt;
  const int64_t b = input.embeds_btd.size(0), t = input.embeds_btd.size(1);
  return at::arange(t, at::TensorOptions(at::kLong).device(input.embeds_btd.device()))
      .expand({3, b, t});
}

at::Tensor blocks_of(const llama::DecoderInput& input) {
  if (input.blocks_bt.defined()) return input.blocks_bt;
  return at::full({input.embeds_btd.size(0), input.embeds_btd.size(1)}, -1, at::kLong);
}

/// All rows in one input, padded to the longest. At most one of the inputs has images.
llama::DecoderInput joined(const std::vector<llama::DecoderInput>& inputs) {
  int64_t t = 0, before = 0;
  for (const llama::DecoderInput& input : inputs) t = std::max(t, input.embeds_btd.size(1));
  const auto any = [&](at::Tensor llama::DecoderInput::*part) {
    return std::ranges::any_of(inputs, [&](const auto& input) { return (input.*part).defined(); });
  };
  std::vector<at::Tensor> embeds, positions, blocks;
  llama::DecoderInput out;
  for (const llama::DecoderInput& input : inputs) {
    embeds.push_back(padded(input.embeds_btd, 1, t, 0));
    positions.push_back(padded(positions_of(input), 2, t, 0));
    blocks.push_back(padded(blocks_of(input), 1, t, -1));
    if (input.deep_places_k.defined()) {
      const int64_t own = input.embeds_btd.size(1);
      const at::Tensor row = at::div(input.deep_places_k, own, "floor");
      out.deep_places_k = (row + before) * t + input.deep_places_k % own;
      out.deepstack_features_kd = input.deepstack_features_kd;
    }
    out.lengths.insert(out.lengths.end(), static_cast<size_t>(input.embeds_btd.size(0)),
                       input.embeds_btd.size(1));
    before += input.embeds_btd.size(0);
  }
  out.embeds_btd = at::cat(embeds);
  if (any(&llama::DecoderInput::positions_3bt)) out.positions_3bt = at::cat(positions, 1);
  if (any(&llama::DecoderInput::blocks_bt)) out.blocks_bt = at::cat(blocks);
  return out;
}

/// On a CPU FP16 products are computed in FP32, so weights are read as FP32.
at::ScalarType compared_dtype(io::DType stored, at::Device device) {
  return stored == io::DType::kF16 && device.is_cpu() ? at::kFloat : hf::to_scalar_type(stored);
}

/// Flat indices of the positions that are not padding.
at::Tensor real_rows(const std::vector<int64_t>& lengths, int64_t t) {
  std::vector<int64_t> rows;
  for (size_t row = 0; row < lengths.size(); ++row) {
    for (int64_t column = 0; column < lengths[row]; ++column)
      rows.push_back(static_cast<int64_t>(row) * t + column);
  }
  return at::tensor(rows, at::kLong);
}

}  // namespace

std::vector<family::Batch> probe_batches(const family::ModelConfig& config) {
  ProbeMaker make(config);
  std::vector<family::Batch> batches = {make.text()};
  if (make.has_room()) batches.push_back(make.image());
  return batches;
}

Probed probe_model(family::Model& model, const std::vector<family::Batch>& batches,
                   const std::vector<family::ImageFeatures>& known) {
  const at::NoGradGuard no_grad;
  const ops::FewRowsGuard few_rows;
  Probed out{.logits_kv = {}, .features = known};
  std::vector<llama::DecoderInput> inputs;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < batches.size(); ++i) {
    const family::Batch& batch = batches[i];
    if (known.empty()) {
      out.features.push_back(batch.pixels.defined() ? model->image_features(batch)
                                                    : family::ImageFeatures());
    }
    const std::vector<int64_t> columns = kept_columns(batch, model->config.image_token);
    inputs.push_back(thinned(model->embed(batch, &out.features[i]), columns));
    const auto kept = static_cast<int64_t>(columns.size());
    for (int64_t row = 0; row < batch.lengths_b.numel(); ++row)
      lengths.push_back(std::min(kept, batch.lengths_b[row].item<int64_t>()));
  }
  const llama::DecoderInput input = joined(inputs);
  const at::Tensor rows = real_rows(lengths, input.embeds_btd.size(1));
  llama::KvCache* no_cache = nullptr;
  out.logits_kv =
      model->language_model(input, rows.to(input.embeds_btd.device()), at::Tensor(), no_cache)
          .to(at::kCPU, at::kFloat);
  return out;
}

Probed probe_folder(const std::string& model_path, const std::string& adapter_path,
                    at::Device device, const std::vector<family::ImageFeatures>& known) {
  const auto dir = std::make_shared<hf::ModelDir>(hf::ModelDir::open(model_path));
  hf::AdapterDir adapter;
  if (!adapter_path.empty()) {
    adapter = hf::AdapterDir::open(adapter_path);
    hf::untie(adapter, *dir);
  }
  family::Model model = hf::load_model(*dir, compared_dtype(dir->stored_dtype, device), device,
                                       /*check_finite=*/true, {.in_files = dir});
  if (!adapter_path.empty()) hf::load_adapter(model, adapter);
  return probe_model(model, probe_batches(dir->config), known);
}

ProbeDifference compare_logits(const at::Tensor& want_kv, const at::Tensor& got_kv) {
  const at::Tensor a = want_kv.to(at::kDouble), b = got_kv.to(at::kDouble);
  const at::Tensor log_a = at::log_softmax(a, -1), log_b = at::log_softmax(b, -1);
  const auto positions = static_cast<double>(a.size(0));
  // A NaN must not look like a small difference: max() propagates it, std::max would not.
  return {.max_abs = (a - b).abs().max().item<double>(),
          .mean_kl = (log_a.exp() * (log_a - log_b)).sum().item<double>() / positions,
          .top1_agreement = (a.argmax(-1) == b.argmax(-1)).sum().item<double>() / positions,
          .largest_logit = a.abs().max().item<double>(),
          .positions = a.size(0)};
}

RoundingBound rounding_bound(io::DType dtype) {
  if (dtype == io::DType::kF32) return {1e-4, 1e-6};
  return dtype == io::DType::kF16 ? RoundingBound{64 * 0x1p-12, 1e-3}
                                  : RoundingBound{64 * 0x1p-9, 0.05};
}

bool within(const ProbeDifference& difference, const RoundingBound& bound) {
  return difference.max_abs <= bound.relative_max_abs * difference.largest_logit &&
         difference.mean_kl <= bound.mean_kl;
}

}  // namespace lft::cli
