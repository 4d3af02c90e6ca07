// What a model knows of its data before it trains: the first loss beside that of guessing, and
// beside that with other images.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/train/proof/proof.h"

namespace lft::train {

/// All in nats a supervised token, without dropout, as the run computes.
struct FirstLoss {
  double loss = 0;      // of the whole probe
  double guessing = 0;  // ln of the vocabulary: every token alike
  /// Of the probe's first rows with an image, as many as have some hundred positions: as they are,
  /// with the image of another row (where the probe shows two), and with a grey one.
  struct Images {
    double own = 0, grey = 0;
    std::optional<double> other;
  };
  std::optional<Images> images;  // nothing where no row shows one
};

/// `loss`: of the probe, as the proof has found it. Builds no graph and moves nothing.
FirstLoss measure_first_loss(llava::Llava& model, const Probe& probe, double loss);

/// One line: the three figures.
std::string describe_first_loss(const FirstLoss& first);

/// A line a suspicion. A loss well above that of guessing (by 0.5: a random head's is above it by
/// half the variance of its logits) is not that of a base that fits its tokenizer and template;
/// images that change nothing to the last bits are not seen.
std::vector<std::string> judge_first_loss(const FirstLoss& first, bool starts_from_adapter);

/// kNumeric where a gradient's norm is above 1.8e19: its square is no float32 any more, AdamW's
/// second moment is infinite, and what it trains never moves.
void require_bounded_gradients(const Proof& proof);

/// kNumeric where the recipe's log.expect_first_loss is set and the loss is not within 2% of it.
void require_first_loss(const FirstLoss& first, double expected);

}  // namespace lft::train
