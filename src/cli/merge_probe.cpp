#include "src/cli/merge_probe.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <random>

namespace lft::cli {
namespace {

constexpr int64_t kTextTokens = 24;

class ProbeMaker {
 public:
  explicit ProbeMaker(const family::ModelConfig& config)
      : config_(config), image_(family::ordinary_image(config)) {}

  family::Batch text() {
    const int64_t t = std::min(kTextTokens, config_.text.max_positions);
    return batch({row(t, 0), row(t, 0)}, {t, std::max<int64_t>(1, t - 5)}, false);
  }
  family::Batch image() {
    const int64_t left = config_.text.max_positions - image_.positions();
    const int64_t t = image_.positions() + std::min(kTextTokens, left);
    return batch({row(t, image_.positions())}, {t}, true);
  }
  bool has_room() const { return config_.text.max_positions >= image_.positions() + 2; }

 private:
  /// BOS, the image's positions, then any tokens but the image's.
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

}  // namespace

std::vector<family::Batch> probe_batches(const family::ModelConfig& config) {
  ProbeMaker make(config);
  std::vector<family::Batch> batches = {make.text()};
  if (make.has_room()) batches.push_back(make.image());
  return batches;
}

std::vector<at::Tensor> probe_logits(family::Model& model,
                                     const std::vector<family::Batch>& batches) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> logits;
  for (const family::Batch& batch : batches)
    logits.push_back(model->all_logits(batch).to(at::kCPU, at::kFloat));
  return logits;
}

ProbeDifference compare_logits(const std::vector<family::Batch>& batches,
                               const std::vector<at::Tensor>& want,
                               const std::vector<at::Tensor>& got) {
  ProbeDifference total;
  double kl = 0, agree = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const at::Tensor t = at::arange(batches[i].input_ids_bt.size(1), at::kLong);
    const at::Tensor real = (t.unsqueeze(0) < batches[i].lengths_b.unsqueeze(1));
    const at::Tensor a = want[i].index({real}).to(at::kDouble),
                     b = got[i].index({real}).to(at::kDouble);  // [positions, vocabulary]
    const at::Tensor log_a = at::log_softmax(a, -1), log_b = at::log_softmax(b, -1);
    kl += (log_a.exp() * (log_a - log_b)).sum().item<double>();
    agree += (a.argmax(-1) == b.argmax(-1)).sum().item<double>();
    // A NaN must not pass for a small difference: max() hands it on, std::max would not.
    const double worst = (a - b).abs().max().item<double>();
    if (!(worst <= total.max_abs)) total.max_abs = worst;
    total.largest_logit = std::max(total.largest_logit, a.abs().max().item<double>());
    total.positions += a.size(0);
  }
  total.mean_kl = kl / static_cast<double>(total.positions);
  total.top1_agreement = agree / static_cast<double>(total.positions);
  return total;
}

}  // namespace lft::cli
