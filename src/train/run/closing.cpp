#include "src/train/run/closing.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/infer/metrics.h"
#include "src/report/run_metrics.h"
#include "src/train/inputs/model_shapes.h"

namespace lft::train {
namespace {

std::string labelled(std::string label, const std::string& text) {
  label.resize(11, ' ');
  return label + text;
}

std::string figure_text(const std::string& name, double value) {
  std::string text = name;
  std::ranges::replace(text, '_', ' ');
  return text + " " + format_number(value, "%.4f");
}

/// "step 375: eval loss 2.9310, the lowest", for the weights that are saved.
std::string saved_text(const Run& run, const Evaluations& evaluations) {
  std::string text = "step " + std::to_string(saved_step(run));
  const std::string kept = run.recipe.train.keep_best.word();
  const std::string name = infer::kept_figure(kept);
  const bool best = run.best.step >= 0;
  for (const auto& [figure, value] : evaluations.figures()) {
    if (figure == name)
      return text + ": " + figure_text(name, value) + (best ? ", the highest" : "");
  }
  if (!std::isfinite(evaluations.loss())) return text;
  return text + ": " + figure_text("eval_loss", evaluations.loss()) +
         (best && name.empty() ? ", the lowest" : "");
}

/// The evaluation with the lowest loss, if it is of another step than the saved one and nothing
/// keeps it.
std::string better_text(const Run& run) {
  if (run.recipe.train.keep_best != recipe::KeepBest::kNone) return "";
  const report::RunMetrics metrics =
      report::read_run_metrics(run.recipe.output_dir + "/metrics.jsonl");
  const report::RunEval* best = nullptr;
  for (const report::RunEval& eval : metrics.evals) {
    if (std::isfinite(eval.loss) && (best == nullptr || eval.loss < best->loss)) best = &eval;
  }
  if (best == nullptr || best->step == run.state.step) return "";
  return "step " + std::to_string(best->step) + " had the lowest eval loss, " +
         format_number(best->loss, "%.4f") + "; train.keep_best: eval_loss saves the best step";
}

}  // namespace

int64_t saved_step(const Run& run) { return run.best.step >= 0 ? run.best.step : run.state.step; }

std::vector<std::string> closing_lines(const Run& run, const Evaluations& evaluations) {
  const recipe::Recipe& recipe = run.recipe;
  const std::string product = product_of(recipe), folder = shell_word(recipe.output_dir);
  std::vector<std::string> lines = {labelled(
      product, recipe.output_dir + "/" + product + " (" + saved_text(run, evaluations) + ")")};
  if (const std::string better = better_text(run); !better.empty())
    lines.push_back(labelled("", better));
  lines.push_back(labelled("chat", "lft generate " + folder));
  if (run.data.eval) lines.push_back(labelled("evaluate", "lft eval " + folder));
  return lines;
}

}  // namespace lft::train
