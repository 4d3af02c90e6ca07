#include "src/train/run/run_page.h"

#include <algorithm>
#include <chrono>

#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/infer/metrics.h"
#include "src/io/files.h"
#include "src/train/machine/device.h"
#include "src/train/machine/precision.h"
#include "src/train/run/sample_answers.h"

namespace lft::train {
namespace {

constexpr double kBetween = 60;  // seconds
constexpr double kMostShare = 0.01;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string sizes_text(const Run& run) {
  std::string text = with_commas(run.data.train->size()) + " to train on";
  if (run.data.eval) text += ", " + with_commas(run.data.eval->size()) + " held out";
  return text;
}

std::string rate_text(const recipe::Recipe& recipe) {
  const auto rate = [](double value) { return format_number(value, "%.3g"); };
  std::string text = rate(recipe.optim.lr) + " (" + recipe.optim.schedule.word() + ")";
  if (recipe.optim.projector_lr >= 0) text += ", projector " + rate(recipe.optim.projector_lr);
  if (recipe.optim.vision_lr >= 0) text += ", vision " + rate(recipe.optim.vision_lr);
  return text;
}

/// Of the adapter, or what is trained whole.
std::string rank_text(const recipe::Recipe& recipe) {
  const std::string whole = recipe.full.empty() ? "" : join(recipe.full) + " trained whole";
  if (recipe.lora.targets.empty()) return whole;
  return std::to_string(recipe.lora.rank) + " (" + recipe.lora.variant + ", alpha " +
         format_number(recipe.lora.alpha, "%g") + ")" + (whole.empty() ? "" : "; " + whole);
}

report::ReportFacts top_facts(const Run& run) {
  const recipe::Recipe& recipe = run.recipe;
  const int64_t samples = recipe.train.batch_size * recipe.train.grad_accum;
  const bool packed = recipe.train.max_tokens_per_step > 0;
  return {{"model", recipe.model.path},
          {"data", recipe.data.train.text()},
          {learns_from_pairs(recipe) ? "pairs" : "rows", sizes_text(run)},
          {"learning rate", rate_text(recipe)},
          {recipe.lora.targets.empty() ? "trained" : "rank", rank_text(recipe)},
          {"steps", with_commas(run.state.step) + " of " + with_commas(run.total_steps) +
                        (packed ? "" : ", " + recipe::samples_text(recipe, samples) + " each")}};
}

report::ReportFacts details_of(const Run& run, const PageFacts& facts) {
  const recipe::Recipe& recipe = run.recipe;
  report::ReportFacts details = {
      {"run", run.id},
      {"trainable parameters", trained_share(run.model.trainable_parameters, run.model.parameters)},
      {"precision",
       compute_name(run.state.compute) + (run.state.recovered ? " (after a recovery)" : "")},
      {"device", run.device.str()},
      {"tokens", with_commas(run.tokens)}};
  if (const std::string line = judge_global_batch(run); !line.empty())
    details.emplace_back(learns_from_pairs(recipe) ? "pairs a step" : "samples a step",
                         std::to_string(recipe.train.batch_size * recipe.train.grad_accum) +
                             " (train.global_batch: " + std::to_string(recipe.train.global_batch) +
                             ")");
  if (std::isfinite(run.last_loss))
    details.emplace_back("last loss", format_number(run.last_loss, "%.4f"));
  if (std::isfinite(facts.eval_loss))
    details.emplace_back("eval loss", format_number(facts.eval_loss, "%.4f"));
  for (const auto& [name, value] : facts.figures)
    details.emplace_back(name, format_number(value, "%.4f"));
  if (!facts.images.empty())
    details.emplace_back("loss with own / other / grey image", facts.images);
  return details;
}

/// The figure whose best value the page names: that of train.keep_best, for pairs else the
/// accuracy.
std::string best_by(const recipe::Recipe& recipe) {
  const bool chosen = recipe.train.keep_best != recipe::KeepBest::kNone;
  return learns_from_pairs(recipe) && !chosen ? "reward_accuracy"
                                              : infer::kept_figure(recipe.train.keep_best.word());
}

}  // namespace

RunPage::RunPage(Run& run, bool writes, std::function<double()> clock)
    : run_(run), writes_(writes), clock_(clock ? std::move(clock) : steady_seconds) {}

report::ReportInput RunPage::input(const PageFacts& facts, report::RunState state) {
  const recipe::Recipe& recipe = run_.recipe;
  report::ReportInput input{
      .title = recipe.output_dir,
      .metrics_path = recipe.output_dir + "/metrics.jsonl",
      .recipe_text = recipe::dump_recipe(recipe),
      .environment_json = environment_json(run_.device, recipe.train.deterministic).dump(2) + "\n",
      .facts = top_facts(run_),
      .end = report::RunEnd{.state = state,
                            .total_steps = run_.total_steps,
                            .kept_step = run_.best.step,
                            .figure = best_by(recipe)},
      .details = details_of(run_, facts)};
  if (!rows_) rows_ = rows_before(run_);
  input.answers = *rows_;
  input.answers_of = rows_name(run_);
  return input;
}

void RunPage::write(const report::ReportInput& input) const {
  report::write_report(run_.recipe.output_dir + "/report.html", input);
}

bool RunPage::due() const {
  return writes_ && (!written_ || clock_() - *written_ >= std::max(kBetween, took_ / kMostShare));
}

void RunPage::refresh(const PageFacts& facts) {
  if (!due()) return;
  const double start = clock_();
  try {
    write(input(facts, report::RunState::kRunning));
  } catch (const std::exception& error) {
    warning_once(std::string("report.html cannot be written during the run: ") + error.what());
  }
  written_ = clock_();
  took_ = *written_ - start;
}

bool RunPage::finish(const PageFacts& facts, report::RunState state, bool answer,
                     const std::string& reason) {
  if (!writes_) return true;
  report::ReportInput page = input(facts, state);
  page.end->reason = reason;
  bool whole = true;
  if (answer) {
    SampleAnswers answers;
    if (requested_signal() == 0) answers = sample_answers(run_);
    whole = requested_signal() == 0 && !answers.stopped;
    if (whole) {
      page.answers = std::move(answers.shown);
      if (answers.asked > 0) {
        page.end->answered =
            with_commas(answers.right) + " of " + with_commas(answers.asked) + " " + answers.rows +
            (answers.asked < answers.all ? ", spread over " + with_commas(answers.all) : "");
      }
    }
  }
  write(page);
  return whole;
}

}  // namespace lft::train
