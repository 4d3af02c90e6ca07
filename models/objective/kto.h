// KTO: rows with one answer each, which is desirable or not.
#pragma once
#include <memory>

#include "models/objective/objective.h"

namespace lft::objective {

struct KtoOptions {
  double beta = 0.1, desirable_weight = 1, undesirable_weight = 1;
};

/// Ethayarajh et al. 2024, equation 7, as TRL 1.16.0 defines it: the mean over the rows of the
/// global batch of w (1 - sigmoid(beta (r - kl))) for a desirable answer and of
/// w (1 - sigmoid(beta (kl - r))) for an undesirable one, where r is the log ratio of the whole
/// answer to the reference and w the weight of its label. The figures are means over the rows of
/// one label, where there are any; the margin is their difference.
std::unique_ptr<const Objective> make_kto(const KtoOptions& options);

}  // namespace lft::objective
