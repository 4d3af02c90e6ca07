#include "src/train/proof/first_loss.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/error.h"
#include "models/objective/forward_loss.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/batch.h"
#include "src/train/step/global_batch.h"

namespace lft::train {
namespace {

constexpr int64_t kPositions = 512;     // of the rows measured with other images
constexpr double kAboveGuessing = 0.5;  // nats
constexpr double kSameLoss = 1e-6;      // relative; float32 sums of a few hundred terms
constexpr double kExpectedWithin = 0.02;

bool shows_an_image(const data::Sample& sample) {
  return !sample.images.empty() && sample.supervised() > 0;
}

/// The first rows with an image, at least one.
std::vector<data::Sample> rows_to_show(const std::vector<data::Sample>& samples) {
  std::vector<data::Sample> rows;
  int64_t positions = 0;
  for (const data::Sample& sample : samples) {
    if (!shows_an_image(sample)) continue;
    positions += static_cast<int64_t>(sample.input_ids.size());
    if (!rows.empty() && positions > kPositions) break;
    rows.push_back(sample);
  }
  return rows;
}

/// An image of the samples with the same shape and other pixels; null if there is none.
const data::PixelImage* another_image(const std::vector<data::Sample>& samples,
                                      const data::PixelImage& image) {
  for (auto sample = samples.rbegin(); sample != samples.rend(); ++sample) {
    for (const data::PixelImage& other : sample->images) {
      if (other.shape == image.shape && other.chw != image.chw) return &other;
    }
  }
  return nullptr;
}

/// The processor's mean colour: zeros to the vision tower, except for rounding.
data::PixelImage grey_image(const data::EncodeOptions& encode, const data::PixelImage& like) {
  data::PixelImage image = like;
  image.chw.clear();
  const auto plane = static_cast<size_t>(like.shape.height * like.shape.width);
  for (int64_t tile = 0; tile < like.shape.tiles; ++tile) {
    for (const float mean : encode.images->mean)
      image.chw.insert(image.chw.end(), plane, static_cast<uint8_t>(std::lround(255 * mean)));
  }
  return image;
}

bool same_loss(double a, double b) { return std::abs(a - b) <= kSameLoss * std::abs(a); }

std::string nats(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

double mean_loss(family::Model& model, const Probe& probe, const std::vector<data::Sample>& samples,
                 at::ScalarType compute) {
  const at::NoGradGuard no_grad;
  const family::Batch batch = data::make_batch(
      {.encode = probe.encode, .device = probe.device, .packed = probe.packed}, samples);
  return objective::forward_loss({.compute = compute}, model, batch).item<double>() /
         static_cast<double>(supervised_tokens(samples));
}

std::optional<ImageLosses> measure_images(family::Model& model, const Probe& probe,
                                          at::ScalarType compute) {
  const std::vector<data::Sample> rows = rows_to_show(probe.samples);
  if (rows.empty()) return std::nullopt;
  std::vector<data::Sample> grey = rows, others = rows;
  bool differ = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < rows[i].images.size(); ++k) {
      const data::PixelImage& own = rows[i].images[k];
      grey[i].images[k] = grey_image(probe.encode, own);
      const data::PixelImage* const other = another_image(probe.samples, own);
      differ &= other != nullptr;
      if (other != nullptr) others[i].images[k] = *other;
    }
  }
  Phase phase("image check", differ ? 3 : 2, "after this pass of the image check");
  ImageLosses losses{.own = mean_loss(model, probe, rows, compute),
                     .rows = std::ssize(rows),
                     .all = rows.size() == probe.samples.size()};
  phase.add();
  if (requested_signal() != 0) return std::nullopt;
  losses.grey = mean_loss(model, probe, grey, compute);
  phase.add();
  if (requested_signal() != 0) return std::nullopt;
  if (differ) losses.other = mean_loss(model, probe, others, compute);
  return losses;
}

std::string describe_images(const ImageLosses& images) {
  std::string text = nats(images.own) + " with the right images, ";
  if (images.other) text += nats(*images.other) + " with swapped ones, ";
  text += nats(images.grey) + " with grey ones";
  if (images.all) return text;
  return text + " (the first " +
         (images.rows == 1 ? "row" : std::to_string(images.rows) + " rows") + " with images)";
}

bool images_change_nothing(const ImageLosses& images) {
  return same_loss(images.own, images.grey) &&
         (!images.other || same_loss(images.own, *images.other));
}

bool FirstLoss::above_guessing() const { return loss > guessing + kAboveGuessing; }

bool FirstLoss::explained_by(double changed) const {
  return changed < loss - kAboveGuessing && changed <= guessing + kAboveGuessing;
}

FirstLoss measure_first_loss(family::Model& model, const Probe& probe, double loss) {
  return {.loss = loss,
          .guessing = std::log(static_cast<double>(model->config.text.vocab)),
          .images = measure_images(model, probe, probe.compute)};
}

std::string describe_first_loss(const FirstLoss& first) {
  const std::string line = "loss before training: " + nats(first.loss) +
                           " per token (random guessing: " + nats(first.guessing) + ")";
  return first.images ? line + ". Image check: " + describe_images(*first.images) : line;
}

std::vector<std::string> judge_first_loss(const FirstLoss& first,
                                          const std::vector<std::string>& tried) {
  std::vector<std::string> lines;
  if (first.above_guessing()) {
    lines.push_back("the untrained model does worse than random guessing (loss " +
                    nats(first.loss) + ", guessing " + nats(first.guessing) +
                    "). Usually the prompt template or the tokenizer is wrong" +
                    (tried.empty() ? "" : ". Tried: " + join(tried, "; ")) +
                    ". Check data.template with lft preview, then the base with lft debug base");
  }
  if (first.images && images_change_nothing(*first.images)) {
    lines.push_back("the images change nothing: the loss is " + nats(first.images->own) +
                    " with the right images and with grey ones. Look at the vision tower and "
                    "the projector of the base (lft debug base), and at whether the images come "
                    "after what they should teach");
  }
  return lines;
}

void require_bounded_gradients(const TrainabilityReport& proof) {
  const double most = std::sqrt(static_cast<double>(std::numeric_limits<float>::max()));
  for (const ProofRow& row : proof.rows) {
    const double norm = std::max(row.grad_norm_a, row.grad_norm_b);
    if (!proof.probe_finite || norm <= most) continue;
    throw Error(ErrorKind::kNumeric,
                {.what = "a gradient is too large to be squared: AdamW's second moment would be "
                         "infinite, and what it trains would never move",
                 .where = row.module,
                 .found = "a norm of " + nats(norm),
                 .expected = "at most " + nats(most),
                 .next = "look at the base for weights of another scale than their neighbours' "
                         "(lft debug base)"});
  }
}

void require_first_loss(const FirstLoss& first, double expected) {
  if (expected <= 0 || std::abs(first.loss - expected) <= kExpectedWithin * expected) return;
  throw Error(ErrorKind::kNumeric,
              {.what = "the first loss is not the one that the recipe expects",
               .where = "log.expect_first_loss",
               .found = nats(first.loss) + ", on the first micro-batch without dropout",
               .expected = nats(expected) + " within 2%",
               .next = "see what has changed since it was written there: base, adapter, data, "
                       "template or batch size"});
}

}  // namespace lft::train
