// The evaluations of a run, as its checkpoints have them: the newest one, and the best one by its
// loss or by a metric; train.keep_best makes it the final one of a run.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

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
  /// run's progress: train.patience does not count it. `counts` is false for an evaluation that
  /// train.eval_every_steps did not ask for: a run that ends later does not have it, so that
  /// train.patience does not count it either.
  bool take(double cost, double loss, int64_t step, bool counts = true);
  bool waited(int64_t patience) const { return patience > 0 && since >= patience; }
};

/// The evaluation that belongs to the newest evaluated step. One that a signal or a crash
/// interrupts stays due, and a resumed run does it before its next step.
struct LastEval {
  int64_t step = -1;       // whose weights it saw; -1: none yet
  bool due = false;        // the step that the run is at still needs its evaluation
  bool scheduled = false;  // train.eval_every_steps asks for that one
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::pair<std::string, double>> figures = {};  // of train.keep_best's metric, by name
};

/// As state.json has them; numbers by their bits.
io::Json best_json(const BestEval& best);
io::Json last_eval_json(const LastEval& last);
/// Both throw nlohmann's exception for a field that is missing or of another type.
BestEval best_from(const io::Json& json);
LastEval last_eval_from(const io::Json& json);

}  // namespace lft::train
