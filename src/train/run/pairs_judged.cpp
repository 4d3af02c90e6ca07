#include "src/train/run/pairs_judged.h"

#include <ATen/Functions.h>

#include <cmath>
#include <sstream>

#include "models/lora/registry.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::train {
namespace {

constexpr double kWithin = 1e-3, kWithinHalf = 0.05;  // of the expected loss, at least of 1

/// Whether the loss of step 1 differs from the one at the reference, as it has noise, or dropout of
/// an update that is not 0.
bool begins_elsewhere(const recipe::Recipe& recipe) {
  const bool updates =
      !recipe.lora.init_from.empty() || lora::find_variant(recipe.lora.variant).changes_weight;
  return recipe.objective.sft_weight > 0 || recipe.optim.neftune_alpha > 0 ||
         (updates && recipe.lora.dropout > 0);
}

constexpr size_t kFewestPairSteps = 10;
constexpr double kPairStandardErrors = 3;

struct Third {
  double mean = 0, error = 0;  // standard error of the mean
};

Third third_of(const std::vector<double>& values, bool last) {
  const size_t count = values.size() / 3, begin = last ? values.size() - count : 0;
  Third third;
  for (size_t i = begin; i < begin + count; ++i) third.mean += values[i];
  third.mean /= static_cast<double>(count);
  double squares = 0;
  for (size_t i = begin; i < begin + count; ++i)
    squares += (values[i] - third.mean) * (values[i] - third.mean);
  third.error = std::sqrt(squares / static_cast<double>(count * (count - 1)));
  return third;
}

/// The first and the last third of a figure's steps.
struct Course {
  Third first, last;
  explicit Course(const std::vector<double>& values)
      : first(third_of(values, false)), last(third_of(values, true)) {}
  double noise() const { return kPairStandardErrors * std::hypot(first.error, last.error); }
  bool grows() const { return last.mean - first.mean > noise(); }
  bool falls() const { return first.mean - last.mean > noise(); }
  std::string text(const std::string& name) const {
    return name + " from " + format_number(first.mean, "%.4g") + " to " +
           format_number(last.mean, "%.4g");
  }
};

}  // namespace

double loss_at_reference(const objective::Objective& objective) {
  family::Batch batch;
  batch.labels_bt = at::tensor({-100, 1, -100, 1}, at::kLong).view({2, 2});
  batch.reference_n = at::zeros({2}, at::kDouble);
  return objective.terms(at::zeros({2}), batch, 0).item<double>();
}

std::string describe_pairs_start(const Run& run) {
  const recipe::Recipe& recipe = run.recipe;
  const std::string name = recipe.objective.name.word();
  if (learns_from_labels(recipe))
    return "first loss expected: half the mean weight of the step's rows, of " + name +
           " at its reference";
  if (!learns_from_pairs(recipe)) return "";
  if (!run.objective->uses_reference())
    return "first loss expected: that of the model, as " + name + " has no reference";
  std::string text =
      "first loss expected: " + format_number(loss_at_reference(*run.objective), "%.4f") + ", of " +
      name + " at its reference";
  if (recipe.objective.sft_weight > 0)
    text += ", plus " + format_number(recipe.objective.sft_weight, "%g") +
            " times the chosen answers' loss per token";
  return text;
}

std::optional<ErrorInfo> judge_pairs_start(const Run& run, double loss) {
  const recipe::Recipe& recipe = run.recipe;
  if (!learns_from_pairs(recipe) || !run.objective->uses_reference() || begins_elsewhere(recipe))
    return std::nullopt;
  const double expected = loss_at_reference(*run.objective),
               within = run.state.compute == at::kFloat ? kWithin : kWithinHalf;
  if (std::abs(loss - expected) <= within * std::max(1.0, expected)) return std::nullopt;
  return ErrorInfo{.what = "the run does not begin at its reference",
                   .where = "the loss of step 1",
                   .found = format_number(loss, "%.4f"),
                   .expected = format_number(expected, "%.4f") +
                               ", as both answers of a pair are "
                               "as likely as under the reference",
                   .next = "delete " + shell_word(recipe.output_dir + "/index") +
                           " and train again into another output_dir; if it is the same, report "
                           "this as a bug"};
}

std::vector<PairWarning> judge_pairs(const std::map<std::string, std::vector<double>>& steps,
                                     const std::string& where) {
  std::vector<PairWarning> warnings;
  for (const char* name :
       {"reward_margin", "rewards_chosen", "rewards_rejected", "reward_accuracy"}) {
    const auto found = steps.find(name);
    if (found == steps.end() || found->second.size() < kFewestPairSteps) return warnings;
  }
  const Course margin(steps.at("reward_margin")), chosen(steps.at("rewards_chosen")),
      rejected(steps.at("rewards_rejected"));
  if (margin.grows() && chosen.falls() && rejected.falls()) {
    warnings.push_back(
        {.kind = "likelihood_displacement",
         .info = {
             .what = "both answers of the pairs become less likely: only the difference is "
                     "learnt (likelihood displacement)",
             .where = where,
             .found = chosen.text("the chosen reward") + ", " + rejected.text("the rejected one"),
             .expected = "a chosen reward that does not fall",
             .next = "set objective.sft_weight: 0.1, or lower optim.lr"}});
  }
  const Third accuracy = third_of(steps.at("reward_accuracy"), /*last=*/true);
  if (std::abs(accuracy.mean - 0.5) <= kPairStandardErrors * accuracy.error) {
    warnings.push_back(
        {.kind = "accuracy_at_half",
         .info = {.what = "the run does not tell the chosen answers from the rejected ones",
                  .where = where,
                  .found = "a reward accuracy of " + format_number(accuracy.mean, "%.3f") + " +- " +
                           format_number(accuracy.error, "%.3f") +
                           " over the last third of the steps",
                  .expected = "above 0.5, the accuracy of a guess",
                  .next = "look at the pairs (lft preview, lft validate), raise optim.lr, or train "
                          "for more steps"}});
  }
  return warnings;
}

std::vector<PairWarning> judge_pairs(const Run& run) {
  if (!learns_from_pairs(run.recipe)) return {};
  const std::string path = run.recipe.output_dir + "/metrics.jsonl";
  std::map<std::string, std::vector<double>> steps;
  std::istringstream lines(io::read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const io::Json json = io::Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.contains("event")) continue;
    for (const std::string& name : run.objective->figure_names()) {
      const auto value = json.find(name);
      if (value != json.end() && value->is_number()) steps[name].push_back(value->get<double>());
    }
  }
  return judge_pairs(steps, "the steps of " + path);
}

}  // namespace lft::train
