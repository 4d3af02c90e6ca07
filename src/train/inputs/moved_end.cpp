#include "src/train/inputs/moved_end.h"

#include "src/base/text.h"
#include "src/train/optim/schedule.h"

namespace lft::train {

std::string describe_moved_end(const RunSettings& now, const checkpoint::Checkpoint& saved) {
  const recipe::Recipe before = recipe::parse_recipe(saved.recipe, "recipe.yaml of the checkpoint");
  const int64_t end = now.total_steps, old_end = planned_steps(before.train, now.steps_per_epoch);
  if (end == old_end) return "";
  const std::string step = std::to_string(saved.step);
  const std::string ends = "the run now ends after step " + std::to_string(end) + " instead of " +
                           std::to_string(old_end);
  if (saved.step > end) {
    return ends + ", and step " + step +
           " is trained already: no step is left to train, and the run saves the adapter of step " +
           step;
  }
  const auto scheduled = saved.state.at("scheduled").get<int64_t>();
  const Schedule old_schedule = Schedule::make(before.optim, old_end),
                 schedule = Schedule::make(now.recipe.optim, end);
  if (scheduled == 0 || saved.step == end ||
      old_schedule.factor(scheduled) == schedule.factor(scheduled))
    return "";
  const double peak = now.recipe.optim.lr * saved.state.at("lr_factor").get<double>();
  const auto rate = [&](double factor) { return format_number(peak * factor, "%.3g"); };
  return ends + ": under optim.schedule: " + now.recipe.optim.schedule.word() +
         " the learning rate goes from " + rate(old_schedule.factor(scheduled - 1)) + " in step " +
         step + " to " + rate(schedule.factor(scheduled)) + " in step " +
         std::to_string(saved.step + 1);
}

}  // namespace lft::train
