// What a model knows of its data before it trains: the first loss compared with the
// uniform-guess loss, and with the loss with other images.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/train/proof/proof.h"

namespace lft::train {

/// In nats a supervised token, without dropout: of the probe's first rows with an image, as many as
/// have some hundred positions.
struct ImageLosses {
  double own = 0, grey = 0;     // as they are, and with a grey one
  std::optional<double> other;  // with the image of another row, where the probe shows two
  int64_t rows = 0;             // that were measured
  bool all = true;              // whether these are the whole probe
};
/// Nothing where no row shows an image. Builds no graph and moves nothing.
std::optional<ImageLosses> measure_images(family::Model& model, const Probe& probe,
                                          at::ScalarType compute);
/// "0.1 with the rows' own images, 3.2 with others', 2.9 with grey ones"; which rows, where they
/// are not the whole probe: its loss is another.
std::string describe_images(const ImageLosses& images);
/// To the last bits: the model does not see them.
bool images_change_nothing(const ImageLosses& images);

/// All in nats a supervised token, without dropout, as the run computes.
struct FirstLoss {
  double loss = 0;      // of the whole probe
  double guessing = 0;  // ln of the vocabulary: every token alike
  std::optional<ImageLosses> images = {};

  /// Well above that of guessing (by 0.5: a random head's is above it by half the variance of its
  /// logits): not that of a base that fits its tokenizer and template.
  bool above_guessing() const;
  /// Whether one change that makes it `loss` names its cause: well below it, and not above
  /// guessing.
  bool explained_by(double loss) const;
};

/// `loss`: of the probe, as the proof has found it.
FirstLoss measure_first_loss(family::Model& model, const Probe& probe, double loss);

/// One line: the figures.
std::string describe_first_loss(const FirstLoss& first);

/// A line a suspicion: a loss above the uniform-guess loss, with what was `tried`
/// (first_loss_trials.h), and images that are not seen.
std::vector<std::string> judge_first_loss(const FirstLoss& first,
                                          const std::vector<std::string>& tried);

/// Mean loss of samples under the probe's layout.
double mean_loss(family::Model& model, const Probe& probe, const std::vector<data::Sample>& samples,
                 at::ScalarType compute);

/// kNumeric where a gradient's norm is above 1.8e19: its square is no float32 any more, AdamW's
/// second moment is infinite, and what it trains never moves.
void require_bounded_gradients(const TrainabilityReport& proof);

/// kNumeric where the recipe's log.expect_first_loss is set and the loss is not within 2% of it.
void require_first_loss(const FirstLoss& first, double expected);

}  // namespace lft::train
