// Judges the model on its data before training: the first loss compared with the uniform-guess
// loss, and with the loss with other images.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/train/proof/proof.h"

namespace lft::train {

/// In nats per supervised token, without dropout: of the probe's first rows with an image, up to a
/// few hundred positions.
struct ImageLosses {
  double own = 0, grey = 0;          // with the row's own image, and with a grey one
  std::optional<double> other = {};  // with the image of another row, if the probe has two
  int64_t rows = 0;                  // number of rows measured
  bool all = true;                   // whether these are all rows of the probe
};
/// Nothing if no row has an image, or after a signal. Builds no graph and changes no state.
std::optional<ImageLosses> measure_images(family::Model& model, const Probe& probe,
                                          at::ScalarType compute);
/// "0.1 with the rows' own images, 3.2 with others', 2.9 with grey ones"; also which rows if they
/// are not the whole probe, whose loss differs.
std::string describe_images(const ImageLosses& images);
/// The losses are equal to the last bits: the model ignores its images.
bool images_change_nothing(const ImageLosses& images);

/// All in nats per supervised token, without dropout, in the run's precision.
struct FirstLoss {
  double loss = 0;      // of the whole probe
  double guessing = 0;  // ln of the vocabulary size: the uniform-guess loss
  std::optional<ImageLosses> images = {};

  /// Clearly above the uniform-guess loss (by 0.5: a random head's is above it by half the variance
  /// of its logits): the base does not fit its tokenizer and template.
  bool above_guessing() const;
  /// Whether a change that gives this loss explains the first one: it is clearly lower, and not
  /// above the uniform-guess loss.
  bool explained_by(double loss) const;
};

/// `loss`: the probe's loss, from the proof.
FirstLoss measure_first_loss(family::Model& model, const Probe& probe, double loss);

/// The figures in one line.
std::string describe_first_loss(const FirstLoss& first);

/// One line per suspicion: a loss above the uniform-guess loss, with the trials in `tried`
/// (first_loss_trials.h), and ignored images.
std::vector<std::string> judge_first_loss(const FirstLoss& first,
                                          const std::vector<std::string>& tried);

/// Mean loss of samples under the probe's layout.
double mean_loss(family::Model& model, const Probe& probe, const std::vector<data::Sample>& samples,
                 at::ScalarType compute);

/// kNumeric if a gradient's norm is above 1.8e19: its square overflows float32, AdamW's second
/// moment is infinite, and the weights never change.
void require_bounded_gradients(const TrainabilityReport& proof);

/// kNumeric if log.expect_first_loss is set and differs from the loss by more than 2%.
void require_first_loss(const FirstLoss& first, double expected);

}  // namespace lft::train
