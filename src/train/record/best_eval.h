// The best evaluation so far, by its loss or by a metric: what a run hands out under
// train.keep_best, and when it has waited long enough for a better one (train.patience).
#pragma once
#include <cstdint>
#include <limits>

#include "src/io/json.h"

namespace lft::train {

struct BestEval {
  double cost = std::numeric_limits<double>::infinity();   // the lowest: the loss, or a metric's
                                                           // figure with its sign turned
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the same evaluation
  int64_t step = -1;                                       // of the same; -1: none yet
  int64_t last_step = -1;                                  // of the newest evaluation
  int64_t since = 0;                                       // evaluations after the best one

  /// Takes in the evaluation of a step; whether it is the best so far. One that is not after the
  /// newest changes nothing. A cost that is not finite is never the best and says nothing about the
  /// run's progress: train.patience does not count it.
  bool take(double cost, double loss, int64_t step);
  bool waited(int64_t patience) const { return patience > 0 && since >= patience; }
};

/// As state.json has it; cost and loss by their bits.
io::Json best_json(const BestEval& best);
/// Throws nlohmann's exception for a field that is missing or of another type.
BestEval best_from(const io::Json& json);

}  // namespace lft::train
