// The duration of a run, estimated before its first step from passes that are timed then.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/train/run/run.h"

namespace lft::train {

/// Seconds for a position of a pass with gradients and of one without, until the first token of one
/// answer alone, and for one more token; 0 if unknown.
struct Speed {
  double position = 0, forward = 0, first_token = 0, token = 0;
  double image = 0;  // for the features of an image, if they are kept: not part of the others
};
/// From the pass of the trainability check, which is repeated if it took less than two seconds
/// (the first pass is slower than later ones), and from the beginning of an answer or two. A longer
/// pass is not repeated without gradients: a prompt's speed is taken for it. Changes no state.
/// Empty after a signal or if the model's output is not finite.
Speed measure_speed(Run& run, const TrainabilityReport& proof);

/// Answers of an evaluation, or before and after training. A batch decodes a token of all its
/// answers at once.
struct Answers {
  double alone = 0;      // answers one by one
  double positions = 0;  // of the prompts of those in batches
  double tokens = 0;     // decoded one after the other
};
/// What a run computes, in this process.
struct Work {
  int64_t steps = 0, evaluations = 0;
  double step_positions = 0, eval_positions = 0;  // in one, with padding
  double image_positions = 0;                     // of the image check of one evaluation
  double reference_positions = 0;                 // of the objective's reference, if not known yet
  double images = 0;                              // whose features are computed once
  Answers in_evaluation = {}, around = {};        // around: before and after training
};
/// Of rows with the lengths of data.train, or of the probe if they are not measured.
Work planned_work(const Run& run);

/// The mean over random batches of `batch` lengths of the longest one.
double padded_mean(std::vector<int64_t> lengths, int64_t batch);

struct Estimate {
  double steps_s = 0, evaluations_s = 0, answers_s = 0, reference_s = 0, images_s = 0;
  double total() const { return steps_s + evaluations_s + answers_s + reference_s + images_s; }
};
Estimate estimate_time(const Speed& speed, const Work& work);

/// "12 min": a rounded duration.
std::string about(double seconds);
/// The line of the plan, with the parts that take at least a second.
std::string describe_estimate(const Estimate& estimate, const Work& work);

/// measure_speed() as the line of the plan; empty if it is unknown.
std::string estimate_line(Run& run, const TrainabilityReport& proof);

}  // namespace lft::train
