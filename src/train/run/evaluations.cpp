#include "src/train/run/evaluations.h"

#include "src/base/log.h"
#include "src/base/text.h"
#include "src/infer/metrics.h"
#include "src/report/figure_text.h"
#include "src/train/machine/device.h"
#include "src/train/run/outputs.h"
#include "src/train/run/sample_answers.h"
#include "src/train/run/shared_run.h"

namespace lft::train {

namespace {

/// The objective of preferences; null: rows of single answers.
const objective::Objective* preference_of(const Run& run) {
  return run.objective->sums_tokens() ? nullptr : run.objective.get();
}

}  // namespace

Evaluations::Evaluations(Run& run, dist::Ranks& ranks, RunMemory& memory, RunFiles& files,
                         SavedSteps& saved)
    : run_(run),
      ranks_(ranks),
      memory_(memory),
      files_(files),
      saved_(saved),
      loss_(run.last_eval.loss),
      figures_(run.last_eval.figures),
      incidents_(run, files, ranks.first()) {}

bool Evaluations::evaluate() {
  if (agreed_signal(ranks_) != 0) return false;
  images_ = measure_images(run_.model.model, run_.probe, run_.state.compute);
  if (agreed_signal(ranks_) != 0) return false;
  if (run_.data.eval) return evaluate_rows();
  record_images();
  run_.last_eval = {.step = run_.state.step};
  return true;
}

bool Evaluations::evaluate_rows() {
  const recipe::Recipe& recipe = run_.recipe;
  memory_.begin("the evaluation after step " + std::to_string(run_.state.step));
  empty_cache(run_.device);
  const std::optional<infer::Metric> metric = infer::find_metric(recipe.train.keep_best.word());
  const infer::EvalOptions options{.batch_size = recipe.train.batch_size,
                                   .workers = recipe.data.workers,
                                   .max_tokens = recipe.train.max_tokens_per_step,
                                   .metric = metric.value_or(infer::Metric::kExact),
                                   .answers = metric.has_value(),
                                   .compute = run_.state.compute,
                                   .preference = preference_of(run_),
                                   .group = rows_of_step(recipe),
                                   .phase = step_text("evaluation of step ")};
  const data::Dataset& rows = *run_.data.eval;
  const infer::EvalResult result = evaluate_shared(ranks_, run_, rows, options);
  empty_cache(run_.device);
  if (result.stopped) return false;
  io::Json answers;
  if (ranks_.first())
    answers = shown_answers(run_, result.records, step_text("answers after step "));
  if (agreed_signal(ranks_) != 0) return false;  // it may have interrupted the answers
  record_images();
  note_skipped(result);
  loss_ = result.loss;
  figures_ = metric ? figures_of(result, *metric) : result.preference_figures;
  const bool scheduled = run_.last_eval.scheduled;
  run_.last_eval = {.step = run_.state.step, .loss = loss_, .figures = figures_};
  files_.eval(run_.state.step, loss_, result.samples, figures_);
  files_.event("eval_answers", run_.state.step, {{"answers", answers}});
  if (result.not_finite > 0) incidents_.report(result);
  if (recipe.train.keep_best != recipe::KeepBest::kNone)
    judge(result.not_finite > 0 ? NAN : cost_of(result), scheduled);
  return true;
}

double Evaluations::cost_of(const infer::EvalResult& result) const {
  if (!changed_model()) return NAN;  // the weights are those before training
  const std::string kept = infer::kept_figure(run_.recipe.train.keep_best.word());
  if (kept.empty()) return result.loss;
  const auto figure = std::ranges::find(figures_, kept, &std::pair<std::string, double>::first);
  return figure == figures_.end() ? NAN : -figure->second;
}

/// At the reference of an objective, updates were too small to change the policy.
bool Evaluations::changed_model() const {
  return run_.schedule.changes_weights(run_.state.scheduled) && !report::at_reference(figures_);
}

std::string Evaluations::step_text(const std::string& what) const {
  return what + std::to_string(run_.state.step);
}

bool Evaluations::of_this_step() const { return run_.last_eval.step == run_.state.step; }

void Evaluations::look_at_images() {
  if (!images_) images_ = measure_images(run_.model.model, run_.probe, run_.state.compute);
}

void Evaluations::record_images() {
  if (!images_) return;
  io::Json fields = {{"own_loss", images_->own}, {"grey_loss", images_->grey}};
  if (images_->other) fields["other_loss"] = *images_->other;
  files_.event("images", run_.state.step, fields);
}

/// Every evaluation uses the same rows.
void Evaluations::note_skipped(const infer::EvalResult& result) {
  for (const std::string& skipped : result.skipped) {
    if (!skipped_.insert(skipped).second) continue;
    files_.note("skipped a bad sample of data.eval: " + skipped);
    files_.event("sample_skipped", run_.state.step, {{"sample", "data.eval: " + skipped}});
  }
}

void Evaluations::judge(double cost, bool scheduled) {
  const int64_t step = run_.state.step;
  if (!run_.best.take(cost, loss_, step, /*counts=*/scheduled)) return;
  files_.event("best", step, {{"eval_loss", loss_}, {"path", run_.recipe.output_dir + "/best"}});
  if (ranks_.first()) saved_.save_best(snapshot(run_, files_.sync()));
}

void Evaluations::tell_of_early_stop() {
  const int64_t step = run_.state.step;
  if (!run_.best.waited(run_.recipe.train.patience) || step >= run_.total_steps) return;
  files_.event("early_stop", step,
               {{"evaluations", run_.best.since}, {"best_step", run_.best.step}});
  files_.note(
      "stopping after step " + std::to_string(step) + ": " + std::to_string(run_.best.since) +
      " evaluations in a row (train.patience) " +
      (by_loss() ? "have not gone below the loss of step " : "were not better than that of step ") +
      std::to_string(run_.best.step));
}

void Evaluations::go_back_to_best() {
  if (run_.best.step < 0 && run_.best.last_step >= 0)
    warning(std::string("no evaluation ") +
            (changed_model() ? "was finite" : "followed a change of the model") +
            ": the weights of the last step are saved");
  if (run_.best.step < 0 || run_.best.step == run_.state.step) return;
  const int64_t last = run_.state.step;
  if (ranks_.first()) take_best(run_);
  share_trainables(ranks_, run_);
  loss_ = run_.best.loss;
  const std::string kept = run_.recipe.train.keep_best.word();
  if (const std::string figure = infer::kept_figure(kept); !figure.empty())
    figures_ = {{figure, -run_.best.cost}};
  files_.note("saved the best weights (step " + std::to_string(run_.best.step) + ", " +
              (by_loss() ? "eval loss " + format_number(run_.best.cost, "%.4f")
                         : kept + " " + format_number(-run_.best.cost, "%.4f")) +
              "); those of the last step are in checkpoints/step-" + std::to_string(last));
}

void Evaluations::tell_of_images() {
  if (!images_ || !images_change_nothing(*images_)) return;
  const std::string what = "the trained model does not see its images: the loss is " +
                           describe_images(*images_),
                    next =
                        "look at the vision tower and the projector (lft debug base), and at "
                        "whether the images of the rows differ (lft validate)";
  files_.event("images_unseen", run_.state.step, {{"what", what}, {"next", next}});
  files_.note("warning: " + what + "; " + next);
}

std::string Evaluations::images() const {
  if (!images_) return "";
  const std::string other = images_->other ? format_number(*images_->other, "%.3g") : "-";
  return format_number(images_->own, "%.3g") + " / " + other + " / " +
         format_number(images_->grey, "%.3g");
}

bool Evaluations::by_loss() const {
  return run_.recipe.train.keep_best == recipe::KeepBest::kEvalLoss;
}

}  // namespace lft::train
