// The evaluations of a run as stored in its checkpoints: the newest one, and the best one by its
// loss or by a metric, which becomes the final one under train.keep_best.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/io/json.h"

namespace lft::train {

struct BestEval {
  double cost = std::numeric_limits<double>::infinity();   // the lowest: the loss, or the negated
                                                           // value of a metric
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the same evaluation
  int64_t step = -1;                                       // of the same; -1: none yet
  int64_t last_step = -1;                                  // of the newest evaluation
  int64_t since = 0;                                       // evaluations after the best one

  /// Records the evaluation of a step; returns whether it is the best so far. One that is not newer
  /// than the newest changes nothing. A cost that is not finite is never the best and is no
  /// evidence of the run's progress: train.patience does not count it. `counts` is false for an
  /// evaluation that train.eval_every_steps did not request: a longer run would not have it, so
  /// train.patience does not count it either.
  bool take(double cost, double loss, int64_t step, bool counts = true);
  bool waited(int64_t patience) const { return patience > 0 && since >= patience; }
};

/// The evaluation of the newest evaluated step. One interrupted by a signal or a crash stays due,
/// and a resumed run repeats it before its next step.
struct LastEval {
  int64_t step = -1;       // the evaluated step; -1: none yet
  bool due = false;        // the run's current step still needs its evaluation
  bool scheduled = false;  // requested by train.eval_every_steps
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::pair<std::string, double>> figures = {};  // of train.keep_best's metric, by name
};

/// The format of state.json; numbers by their bits.
io::Json best_json(const BestEval& best);
io::Json last_eval_json(const LastEval& last);
/// Both throw nlohmann's exception for a field that is missing or of another type.
BestEval best_from(const io::Json& json);
LastEval last_eval_from(const io::Json& json);

}  // namespace lft::train
