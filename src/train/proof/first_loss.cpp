#include "src/train/proof/first_loss.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/error.h"
#include "models/ops/core/precision.h"
#include "src/base/text.h"
#include "src/data/batch.h"

namespace lft::train {
namespace {

constexpr int64_t kPositions = 512;     // of the rows that are shown other images
constexpr double kAboveGuessing = 0.5;  // nats
constexpr double kSameLoss = 1e-6;      // relative; float32 sums of some hundred terms
constexpr double kExpectedWithin = 0.02;

double mean_loss(llava::Llava& model, const Probe& probe,
                 const std::vector<data::Sample>& samples) {
  const at::NoGradGuard no_grad;
  const ops::ComputeDtypeGuard compute(probe.compute);
  int64_t supervised = 0;
  for (const data::Sample& sample : samples) supervised += sample.supervised();
  const llava::LlavaBatch batch = data::make_batch(
      {.encode = probe.encode, .device = probe.device, .packed = probe.packed}, samples);
  return model->loss_sum(batch).item<double>() / static_cast<double>(supervised);
}

bool shows_an_image(const data::Sample& sample) {
  return !sample.images.empty() && sample.supervised() > 0;
}

/// The first that show an image, at least one.
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

/// An image of the samples with other pixels than this one; null where all are alike.
const data::PixelImage* another_image(const std::vector<data::Sample>& samples,
                                      const data::PixelImage& image) {
  for (auto sample = samples.rbegin(); sample != samples.rend(); ++sample) {
    for (const data::PixelImage& other : sample->images) {
      if (other.chw != image.chw) return &other;
    }
  }
  return nullptr;
}

/// What the processor's mean colour is: zeros to the vision tower, but for rounding.
data::PixelImage grey_image(const data::EncodeOptions& encode, int64_t size) {
  data::PixelImage image{.size = size, .chw = {}};
  const auto pixels = static_cast<size_t>(size * size);
  for (const float mean : encode.image_mean)
    image.chw.insert(image.chw.end(), pixels, static_cast<uint8_t>(std::lround(255 * mean)));
  return image;
}

bool same_loss(double a, double b) { return std::abs(a - b) <= kSameLoss * std::abs(a); }

std::string nats(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

FirstLoss measure_first_loss(llava::Llava& model, const Probe& probe, double loss) {
  FirstLoss first{.loss = loss,
                  .guessing = std::log(static_cast<double>(model->config.text.vocab)),
                  .images = {}};
  const std::vector<data::Sample> rows = rows_to_show(probe.samples);
  if (rows.empty()) return first;
  std::vector<data::Sample> grey = rows, others = rows;
  bool differ = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < rows[i].images.size(); ++k) {
      const data::PixelImage& own = rows[i].images[k];
      grey[i].images[k] = grey_image(probe.encode, own.size);
      const data::PixelImage* const other = another_image(probe.samples, own);
      differ &= other != nullptr;
      if (other != nullptr) others[i].images[k] = *other;
    }
  }
  first.images = {.own = mean_loss(model, probe, rows),
                  .grey = mean_loss(model, probe, grey),
                  .other = differ ? std::optional(mean_loss(model, probe, others)) : std::nullopt};
  return first;
}

std::string describe_first_loss(const FirstLoss& first) {
  std::string line = "first loss " + nats(first.loss) + " a token before training; guessing has " +
                     nats(first.guessing);
  if (!first.images) return line;
  line += "; " + nats(first.images->own) + " with the rows' own images, ";
  if (first.images->other) line += nats(*first.images->other) + " with others', ";
  return line + nats(first.images->grey) + " with grey ones";
}

std::vector<std::string> judge_first_loss(const FirstLoss& first, bool starts_from_adapter) {
  std::vector<std::string> lines;
  if (first.loss > first.guessing + kAboveGuessing) {
    lines.push_back("the first loss, " + nats(first.loss) + ", is above that of guessing, " +
                    nats(first.guessing) + ": something does not fit the weights. Look at " +
                    (starts_from_adapter ? "lora.init_from (train once without it), " : "") +
                    "data.template and the tokenizer (lft debug preview shows what the model "
                    "reads), and at the base itself (lft debug base)");
  }
  if (!first.images) return lines;
  const FirstLoss::Images& images = *first.images;
  if (same_loss(images.own, images.grey) &&
      (!images.other || same_loss(images.own, *images.other))) {
    lines.push_back("the images change nothing: the loss is " + nats(images.own) +
                    " with the rows' own images and with grey ones. Look at the vision tower and "
                    "the projector of the base (lft debug base), and at whether the images come "
                    "after what they should teach");
  }
  return lines;
}

void require_bounded_gradients(const Proof& proof) {
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
