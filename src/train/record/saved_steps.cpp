#include "src/train/record/saved_steps.h"

#include <limits>
#include <set>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/io/files.h"
#include "src/recipe/train_command.h"
#include "src/recipe/value_text.h"
#include "src/train/record/best_eval.h"

namespace lft::train {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();  // retire_best() selects

std::string checkpoints_of(const recipe::Recipe& recipe) {
  return recipe.output_dir + "/checkpoints";
}
std::string best_of(const recipe::Recipe& recipe) { return recipe.output_dir + "/best"; }
std::string step_path(const std::string& dir, int64_t step) {
  return dir + "/step-" + std::to_string(step);
}

/// The step of the best evaluation up to a checkpoint; -1 if there is none.
int64_t best_step(const io::Json& state) {
  const auto best = state.find("best_eval");
  if (best == state.end() || !best->is_object()) return -1;
  return best->value("step", int64_t{-1});
}

/// Steps that the checkpoints on disk name as their best. A damaged one names none: no run resumes
/// from it.
std::set<int64_t> named_best_steps(const recipe::Recipe& recipe) {
  std::set<int64_t> steps;
  for (const checkpoint::CheckpointStatus& saved :
       checkpoint::list_checkpoints(checkpoints_of(recipe), /*verify=*/false)) {
    try {
      steps.insert(best_step(io::read_json_file(saved.path + "/state.json")));
    } catch (const Error&) {
      continue;
    }
  }
  return steps;
}

}  // namespace

SavedSteps::SavedSteps(const recipe::Recipe& recipe, bool behind)
    : recipe_(recipe), writer_(checkpoints_of(recipe), recipe.checkpoint.keep, behind) {}

void SavedSteps::save_best(const checkpoint::Checkpoint& step) {
  writer_.wait();  // the checkpoint being written names a best step, too
  checkpoint::save_checkpoint(best_of(recipe_), step, kAll);
  retire_best(step.step);
}

void SavedSteps::finish(int64_t best) {
  writer_.wait();
  if (recipe_.train.keep_best != recipe::KeepBest::kNone) retire_best(best);
}

void SavedSteps::retire_best(int64_t best) {
  std::set<int64_t> needed = named_best_steps(recipe_);
  needed.insert(best);
  checkpoint::retire_steps(best_of(recipe_), needed);
}

checkpoint::Checkpoint load_best(const recipe::Recipe& recipe, int64_t step,
                                 const std::string& run_id) {
  const std::string path = step_path(best_of(recipe), step);
  checkpoint::Checkpoint best = checkpoint::load_checkpoint(path);
  if (best.run_id == run_id) return best;
  refuse(ErrorKind::kCheckpoint, "the best evaluation's checkpoint is another run's", path,
         best.run_id, run_id, "train again into another output_dir");
}

void require_best(const recipe::Recipe& recipe, const checkpoint::Checkpoint& newest) {
  const int64_t step = best_step(newest.state);
  if (recipe.train.keep_best == recipe::KeepBest::kNone || step < 0) return;
  ErrorInfo lost;
  try {
    load_best(recipe, step, newest.run_id);
    return;
  } catch (const Error& error) {
    lost = error.info();
  }
  try {
    const std::string kept = step_path(checkpoints_of(recipe), step);
    checkpoint::save_checkpoint(best_of(recipe), checkpoint::load_checkpoint(kept), kAll);
    warning("the weights of the best evaluation, of step " + std::to_string(step) +
            ", could not be read from " + best_of(recipe) + ": they are copied from " + kept);
    return;
  } catch (const Error&) {
    // The checkpoint of that step was removed long ago: the first loss is decisive.
  }
  lost.what = "the weights of the best evaluation, of step " + std::to_string(step) +
              ", cannot be read, and the run would end without them: " + lost.what;
  lost.next =
      "restore " + step_path(best_of(recipe), step) +
      " from a copy; without one, another run starts from the weights of step " +
      std::to_string(newest.step) + ":\n  " +
      recipe::next_run_command(
          recipe, "-next",
          {{"lora.init_from", recipe::value_text(step_path(checkpoints_of(recipe), newest.step))}});
  throw Error(ErrorKind::kCheckpoint, std::move(lost));
}

}  // namespace lft::train
