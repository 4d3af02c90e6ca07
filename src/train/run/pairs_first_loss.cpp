#include "src/train/run/pairs_first_loss.h"

#include <ATen/Functions.h>

#include <cmath>

#include "src/base/text.h"

namespace lft::train {
namespace {

constexpr double kWithin = 1e-3, kWithinHalf = 0.05;  // of the expected loss, at least of 1

bool begins_elsewhere(const recipe::Recipe& recipe) {
  return recipe.objective.sft_weight > 0 || recipe.optim.neftune_alpha > 0 ||
         (!recipe.lora.init_from.empty() && recipe.lora.dropout > 0);
}

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

}  // namespace lft::train
