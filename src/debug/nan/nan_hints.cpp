#include "src/debug/nan/nan_hints.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "src/debug/nan/nan_run.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::debug {
namespace {

using train::short_number;

/// Mean of the last three.
double recent_loss(const std::vector<StepFigures>& history) {
  const size_t count = std::min<size_t>(3, history.size());
  double sum = 0;
  for (size_t i = history.size() - count; i < history.size(); ++i) sum += history[i].loss;
  return sum / static_cast<double>(count);
}

std::string warmup_text(const recipe::Recipe& recipe) {
  return recipe.optim.warmup_ratio == 0
             ? ", without warm-up (optim.warmup_ratio 0)"
             : ", optim.warmup_ratio " + short_number(recipe.optim.warmup_ratio);
}

/// The loss had at least doubled, and increased by 1, since its minimum; or a weight is as large as
/// only updates with this rate make it.
void add_rate_hint(const recipe::Recipe& recipe, const std::vector<StepFigures>& history,
                   const train::NamedTensor& largest_weight, std::vector<train::Hint>& hints) {
  if (history.empty()) return;
  const StepFigures& best = *std::ranges::min_element(history, {}, &StepFigures::loss);
  const double recent = recent_loss(history),
               weight = train::largest_magnitude(largest_weight.tensor);
  double moved = 0;  // AdamW changes a weight by about its rate per step
  for (const StepFigures& each : history) moved += each.lr;
  const std::string name = recipe.optim.warmup_ratio == 0
                               ? "learning rate too high, without warm-up"
                               : "learning rate too high";
  std::vector<std::string> evidence;
  if (recent > 2 * best.loss && recent > best.loss + 1) {
    evidence.push_back("the loss rose from " + short_number(best.loss) + " (step " +
                       std::to_string(best.step) + ") to " + short_number(recent) +
                       " (mean of the last " + std::to_string(std::min<size_t>(3, history.size())) +
                       " steps)");
  }
  if (moved >= 1 && weight >= moved / 10) {
    evidence.push_back("the largest trained weight is " + short_number(weight) + " (" +
                       largest_weight.name + ") after rates that sum to " + short_number(moved));
  }
  if (evidence.empty()) return;
  std::string text = evidence.front();
  if (evidence.size() > 1) text += "; " + evidence.back();
  hints.push_back({name, text + "; optim.lr " + short_number(recipe.optim.lr) + ", last used " +
                             short_number(history.back().lr) + warmup_text(recipe)});
}

void add_clipping_hint(const recipe::Recipe& recipe, const std::vector<StepFigures>& history,
                       std::vector<train::Hint>& hints) {
  if (recipe.optim.clip_grad_norm != 0 || history.size() < 3) return;
  const StepFigures& largest = *std::ranges::max_element(history, {}, &StepFigures::grad_norm);
  const double peak = largest.grad_norm;
  std::vector<double> norms;
  for (const StepFigures& each : history) norms.push_back(each.grad_norm);
  std::ranges::sort(norms);
  const double median = norms[norms.size() / 2];
  if (!(peak >= 10 * median)) return;
  hints.push_back({"no gradient clipping",
                   "optim.clip_grad_norm is 0, and the gradient norm reached " +
                       short_number(peak) + " at step " + std::to_string(largest.step) + ", " +
                       short_number(peak / median) + " times the median of the run"});
}

}  // namespace

std::vector<StepFigures> read_history(const std::string& path, int64_t before_step) {
  std::vector<StepFigures> history;
  if (!io::path_exists(path)) return history;
  const std::string text = io::read_file(path);
  for (const auto part : std::views::split(text, '\n')) {
    const io::Json line =
        io::Json::parse(part.begin(), part.end(), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || line.contains("event")) continue;
    const auto number = [&](const char* key) {
      return line.contains(key) && line[key].is_number() ? line[key].get<double>() : NAN;
    };
    const double step = number("step");
    StepFigures figures{
        .loss = number("loss"), .lr = number("lr"), .grad_norm = number("grad_norm")};
    const bool whole = std::isfinite(figures.loss) && std::isfinite(figures.lr) &&
                       std::isfinite(figures.grad_norm);
    if (!whole || !(step >= 0 && step < static_cast<double>(before_step))) continue;
    figures.step = static_cast<int64_t>(step);
    history.push_back(figures);
  }
  return history;
}

std::vector<train::Hint> run_hints(const recipe::Recipe& recipe,
                                   const std::vector<StepFigures>& history,
                                   const train::NamedTensor& largest_weight) {
  std::vector<train::Hint> hints;
  add_rate_hint(recipe, history, largest_weight, hints);
  add_clipping_hint(recipe, history, hints);
  return hints;
}

}  // namespace lft::debug
