#include "src/train/run/estimate.h"

#include <ATen/ceil_div.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/base/errors.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/data/shared_prompt.h"
#include "src/infer/evaluate.h"
#include "src/infer/generate.h"
#include "src/infer/metrics.h"
#include "src/train/machine/device.h"
#include "src/train/proof/first_loss.h"
#include "src/train/proof/proof_probe.h"
#include "src/train/run/sample_answers.h"

namespace lft::train {
namespace {

constexpr double kShortPass = 2;  // seconds
constexpr int64_t kTimedTokens = 5, kTimedAnswers = 3;
constexpr double kForwardShare = 0.4;  // of the time of a pass with gradients, if not measured
constexpr double kImagePasses = 3;     // of the image check: own images, others' and grey ones

class PassTimer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// The seconds so far, from which it starts again.
  double lap() {
    const double taken = seconds();
    start_ = std::chrono::steady_clock::now();
    return taken;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Positions of the probe's pass, with padding.
double probe_positions(const Probe& probe) {
  if (probe.packed)
    return static_cast<double>(data::packed_positions(probe.samples, probe.encode.share_prompts));
  size_t longest = 0;
  for (const data::Sample& sample : probe.samples)
    longest = std::max(longest, sample.input_ids.size());
  return static_cast<double>(longest * probe.samples.size());
}

/// A pass over the probe with gradients, and one without.
void time_passes(Run& run, const TrainabilityReport& proof, Speed& speed) {
  const double positions = probe_positions(run.probe);
  speed.position = proof.pass_s / positions;
  if (proof.pass_s >= kShortPass) return;
  std::vector<at::Tensor> tensors;
  for (const lora::Trainable& trainable : run.model.trainables) tensors.push_back(trainable.tensor);
  Probe probe = run.probe;
  probe.loss_scale = proof.loss_scale;
  PassTimer timer;
  probe_gradients(run.model.model, tensors, probe);
  speed.position = std::min(proof.pass_s, timer.lap()) / positions;
  mean_loss(run.model.model, run.probe, run.probe.samples, run.state.compute);
  speed.forward = timer.lap() / positions;
}

/// The beginning of an answer to one of the probe's rows; keeps the shorter times.
void time_answer(Run& run, size_t row, Speed& speed) {
  const data::Sample& sample = run.probe.samples[row];
  const RunData& data = run.data;
  const data::Sample prompt = infer::question_of(sample, data.train->row(run.probe.indices[row]),
                                                 *data.tokenizer, data.encode);
  const auto take = [](double& shortest, double taken) {
    shortest = shortest == 0 ? taken : std::min(shortest, taken);
  };
  PassTimer timer;
  bool begun = false;
  infer::GenerateOptions options;
  options.max_new_tokens = kTimedTokens;
  options.on_token = [&](size_t, int64_t) {
    take(begun ? speed.token : speed.first_token, timer.lap());
    begun = true;
  };
  infer::generate_batch(run.model.model, {prompt}, data.encode, options, run.state.compute);
  if (!begun) take(speed.first_token, timer.seconds());  // an end token came first
  if (speed.forward == 0)
    speed.forward = speed.first_token / static_cast<double>(prompt.input_ids.size());
}

/// Several short answers: the first one is slower, and one may end at once.
void time_answers(Run& run, Speed& speed) {
  const PassTimer timer;
  int64_t timed = 0;
  for (size_t row = 0; row < run.probe.samples.size() && timed < kTimedAnswers; ++row) {
    if (run.probe.samples[row].supervised() == 0) continue;
    if (requested_signal() != 0 || (speed.token > 0 && timer.seconds() > kShortPass)) return;
    ++timed;
    try {
      time_answer(run, row, speed);
    } catch (const Error& error) {  // its prompt leaves no position for an answer
      if (error.kind() != ErrorKind::kInput) throw;
    }
  }
}

/// Lengths, supervised tokens and images of the rows.
struct RowSizes {
  std::vector<int64_t> lengths;
  double supervised = 0, images = 0;  // means
  double mean() const {
    double sum = 0;
    for (const int64_t length : lengths) sum += static_cast<double>(length);
    return lengths.empty() ? 0 : sum / static_cast<double>(lengths.size());
  }
};

RowSizes row_sizes(const Run& run) {
  std::vector<data::SampleLength> measured = run.data.lengths;
  if (measured.empty())
    for (const data::Sample& sample : run.probe.samples)
      measured.push_back(data::sample_length(sample));
  RowSizes rows;
  for (const data::SampleLength& length : measured) {
    if (length.tokens == 0) continue;  // a bad sample
    rows.lengths.push_back(length.packed());
    rows.supervised += length.supervised;
    rows.images += length.images;
  }
  const double count = std::max<double>(1, static_cast<double>(rows.lengths.size()));
  rows.supervised /= count;
  rows.images /= count;
  return rows;
}

/// Images whose features are computed, if each of `distinct` ones is shown `shown / distinct` times
/// and those that fit are kept.
double computed_images(const Run& run, double distinct, double shown) {
  const family::KeptCost kept = run.model.model->kept_features();
  if (kept.images == 0 || distinct == 0) return 0;
  const double fit = static_cast<double>(run.recipe.data.image_cache_mb << 20) *
                     static_cast<double>(kept.images) / static_cast<double>(kept.bytes);
  const double share = std::min(1.0, fit / distinct);
  return share * distinct + (1 - share) * std::max(shown, distinct);
}

int64_t evaluations_of(const recipe::Recipe::Train& train, int64_t steps) {
  const int64_t every = train.eval_every_steps;
  return every > 0 ? at::ceil_div(steps, every) : 1;
}

}  // namespace

double padded_mean(std::vector<int64_t> lengths, int64_t batch) {
  std::ranges::sort(lengths);
  const auto count = static_cast<double>(lengths.size()), exponent = static_cast<double>(batch);
  double mean = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto place = static_cast<double>(i);
    mean += static_cast<double>(lengths[i]) *
            (std::pow((place + 1) / count, exponent) - std::pow(place / count, exponent));
  }
  return mean;
}

Speed measure_speed(Run& run, const TrainabilityReport& proof) {
  if (!proof.probe_finite || probe_positions(run.probe) == 0 || requested_signal() != 0) return {};
  const Phase phase("estimate of the duration");
  Speed speed;
  time_passes(run, proof, speed);
  time_answers(run, speed);
  const family::KeptCost kept = run.model.model->kept_features();
  if (kept.images > 0) speed.image = kept.seconds / static_cast<double>(kept.images);
  if (speed.forward == 0) speed.forward = kForwardShare * speed.position;
  speed.forward = std::min(speed.forward, speed.position);
  release_free_memory();
  return speed;
}

Work planned_work(const Run& run) {
  const recipe::Recipe::Train& train = run.recipe.train;
  const RowSizes rows = row_sizes(run);
  const auto ranks = static_cast<double>(run.ranks);
  const bool packed = train.max_tokens_per_step > 0;
  const double mean = rows.mean(), padded = packed || run.shares_prompts
                                                ? mean
                                                : padded_mean(rows.lengths, train.batch_size);
  const int64_t per_step = packed ? run.rows / std::max<int64_t>(1, run.steps_per_epoch)
                                  : train.batch_size * train.grad_accum;
  Work work{.steps = run.total_steps - run.state.step};
  work.step_positions = static_cast<double>(std::min(per_step, run.rows)) / ranks *
                        (run.recipe.data.group_by_length ? mean : padded);
  const double prompt = std::max(0.0, mean - rows.supervised);
  const AnswerCounts counts = answer_counts(run);
  const double untrained = std::min(2 * rows.supervised + 16, counts.most_tokens),
               trained = std::min(rows.supervised, counts.most_tokens);
  if (run.data.eval) {
    const auto held_out = static_cast<double>(run.data.eval->size()) / ranks;
    work.evaluations = evaluations_of(train, run.total_steps);
    work.eval_positions = held_out * padded;
    const bool images = std::ranges::any_of(
        run.probe.samples, [](const data::Sample& sample) { return !sample.images.empty(); });
    if (images) work.image_positions = kImagePasses * probe_positions(run.probe);
    const auto batch = static_cast<double>(train.batch_size);
    work.in_evaluation =
        infer::find_metric(train.keep_best.word())
            ? Answers{.positions = held_out * prompt, .tokens = held_out / batch * trained}
            : Answers{.alone = counts.shown, .tokens = counts.shown * trained};
  }
  if (run.objective->uses_reference()) {
    const double passes = run.objective->uses_kl() ? 2 : 1;  // also of the next row's answer
    for (const data::Dataset* rows : {run.data.train.get(), run.data.eval.get()})
      if (rows != nullptr && rows->references().empty())
        work.reference_positions += passes * static_cast<double>(rows->size()) / ranks * mean;
  }
  const double trained_rows = static_cast<double>(work.steps * std::min(per_step, run.rows));
  double distinct = std::min(trained_rows, static_cast<double>(run.rows)), shown = trained_rows;
  if (run.data.eval) {
    distinct += static_cast<double>(run.data.eval->size());
    shown += static_cast<double>(work.evaluations * run.data.eval->size());
  }
  work.images = computed_images(run, rows.images * distinct / ranks, rows.images * shown / ranks);
  work.around = {.alone = counts.shown,
                 .positions = counts.at_end * prompt,
                 .tokens = counts.shown * untrained + counts.at_end / counts.batch * trained};
  return work;
}

Estimate estimate_time(const Speed& speed, const Work& work) {
  const auto time_of = [&](const Answers& answers) {
    return answers.alone * speed.first_token + answers.positions * speed.forward +
           answers.tokens * speed.token;
  };
  return {.steps_s = static_cast<double>(work.steps) * work.step_positions * speed.position,
          .evaluations_s = static_cast<double>(work.evaluations) *
                           ((work.eval_positions + work.image_positions) * speed.forward +
                            time_of(work.in_evaluation)),
          .answers_s = time_of(work.around),
          .reference_s = work.reference_positions * speed.forward,
          .images_s = work.images * speed.image};
}

std::string about(double seconds) {
  if (seconds < 1.5) return "1 s";
  if (seconds < 99.5) return format_number(seconds, "%.0f s");
  if (seconds < 99.5 * 60) return format_number(seconds / 60, "%.0f min");
  if (seconds < 48 * 3600) return format_number(seconds / 3600, "%.1f h");
  return format_number(seconds / 86400, "%.1f days");
}

std::string describe_estimate(const Estimate& estimate, const Work& work) {
  const auto counted = [](int64_t count, const std::string& what) {
    return with_commas(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::vector<std::string> parts;
  if (estimate.evaluations_s >= 1)
    parts.push_back(about(estimate.evaluations_s) + " in " +
                    counted(work.evaluations, "evaluation"));
  if (estimate.answers_s >= 1)
    parts.push_back(about(estimate.answers_s) + " in the answers before and after");
  if (estimate.images_s >= 1)
    parts.push_back(about(estimate.images_s) + " in the features of " +
                    counted(std::llround(work.images), "image"));
  if (estimate.reference_s >= 1)
    parts.push_back(about(estimate.reference_s) + " in the reference before step 1");
  return "time       about " + about(estimate.total()) + " for " + counted(work.steps, "step") +
         " (estimated)" + (parts.empty() ? "" : ", of which " + join(parts, " and "));
}

std::string estimate_line(Run& run, const TrainabilityReport& proof) {
  const Speed speed = measure_speed(run, proof);
  if (speed.position == 0) return "";
  const Work work = planned_work(run);
  return describe_estimate(estimate_time(speed, work), work);
}

}  // namespace lft::train
