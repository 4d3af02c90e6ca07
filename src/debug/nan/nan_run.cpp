#include "src/debug/nan/nan_run.h"

#include <ATen/core/grad_mode.h>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/data/batch.h"
#include "src/data/loader.h"
#include "src/debug/nan/nan_hints.h"
#include "src/debug/nan/nan_text.h"
#include "src/debug/nan/replay.h"
#include "src/io/run_folder.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/reference.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/determinism.h"
#include "src/train/optim/loss_scaler.h"
#include "src/train/run/run.h"

namespace lft::debug {
namespace {

/// The newest checkpoint at or before `last` that verifies; nothing if there is none.
std::optional<checkpoint::Checkpoint> find_checkpoint(const std::string& dir, int64_t last) {
  std::vector<std::string> faults;
  for (const checkpoint::CheckpointStatus& each :
       checkpoint::list_checkpoints(dir, /*verify=*/false)) {
    if (each.step > last) continue;
    try {
      checkpoint::Checkpoint checkpoint = checkpoint::load_checkpoint(each.path);
      for (const std::string& fault : faults) warning("not used: " + fault);
      return checkpoint;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCheckpoint) throw;
      faults.push_back(each.path + ": " + error.info().what);
    }
  }
  if (faults.empty()) return std::nullopt;
  refuse(ErrorKind::kCheckpoint,
         "no checkpoint at or before step " + std::to_string(last) + " can be used", dir,
         join(faults, "\n"), "one that verifies",
         "restore one from a copy, or give another output_dir: then the first weights are used");
}

train::NamedTensor largest_weight(const std::vector<lora::Trainable>& trainables) {
  train::NamedTensor largest;
  double most = -1;
  for (const lora::Trainable& trainable : trainables) {
    const double value = train::largest_magnitude(trainable.tensor);
    if (!(value > most)) continue;
    most = value;
    largest = {trainable.name, trainable.tensor};
  }
  return largest;
}

/// Precision and loss scale of the run at the checkpoint, if they had changed.
void take_state(const checkpoint::Checkpoint& checkpoint, HuntInput& input) {
  try {
    const io::Json& state = checkpoint.state;
    if (state.at("recovered").get<bool>()) input.compute = at::kFloat;
    const train::LossScale scale = train::loss_scale_from(state.at("loss_scale"));
    if (input.compute == at::kHalf && scale.enabled) input.loss_scale = scale.scale;
  } catch (const nlohmann::json::exception& error) {
    refuse(ErrorKind::kCheckpoint, "state.json of the checkpoint lacks a field",
           "step " + std::to_string(checkpoint.step), error.what(), {},
           "restore it from a copy, or move it away: then the one before it is used");
  }
}

std::string checkpoint_text(const checkpoint::Checkpoint& checkpoint, int64_t step) {
  const int64_t behind = step - 1 - checkpoint.step;
  const std::string text = "of the checkpoint of step " + std::to_string(checkpoint.step);
  if (behind == 0) return text + ", as the step found them";
  return text + ", the newest before the step, which found them " + std::to_string(behind) +
         (behind == 1 ? " step further" : " steps further");
}

}  // namespace

HuntInput hunt_input(const train::RunInputs& inputs, const train::RunModel& model,
                     const data::StepSamples& samples, int64_t step) {
  HuntInput input{
      .trainables = model.trainables,
      .seed = static_cast<uint64_t>(inputs.recipe.train.seed),
      .step = step,
      .compute = inputs.precision.compute,
      .recompute = train::recompute_every(inputs.recipe.train.activation_checkpointing)};
  if (input.compute == at::kHalf) input.loss_scale = inputs.recipe.precision.loss_scale.init;
  data::BatchLayout layout = train::batch_layout(inputs);
  layout.fill_up = 0;
  input.samples = samples;
  input.samples.layout = std::make_shared<data::BatchLayout>(layout);
  input.samples.made = {};
  for (const std::vector<data::Sample>& micro : samples.micro) {
    input.micro.push_back(data::make_batch(layout, micro));
    std::vector<std::string>& ids = input.ids.emplace_back();
    for (const data::Sample& sample : micro) ids.push_back(sample.id);
  }
  return input;
}

int hunt_and_report(const recipe::Recipe& recipe, family::Model& model, const HuntInput& input,
                    const std::string& metrics, const std::string& when_finite) {
  const Hunt hunt = hunt_non_finite(model, input);
  std::vector<train::Hint> hints;
  if (hunt.found())
    hints = run_hints(recipe, read_history(metrics, input.step), largest_weight(input.trainables));
  for (const std::string& line : hunt_lines(hunt, input, hints))
    print_line(escape_text(line, 1000));
  if (hunt.found()) throw_found(hunt, input, hints);
  print_line(when_finite);
  return 0;
}

int debug_nan(const recipe::Recipe& recipe, std::optional<int64_t> asked) {
  const std::string incident = io::incident_folder(recipe.output_dir);
  if (!asked && incident != recipe.output_dir) {
    print_line(
        "the run's newest incident, with its own recipe and weights; --step N runs a batch "
        "of this recipe instead");
    return replay(incident);
  }
  const int64_t step = asked.value_or(1);
  train::make_deterministic(recipe.train.deterministic);
  const std::optional<checkpoint::Checkpoint> checkpoint =
      find_checkpoint(recipe.output_dir + "/checkpoints", step - 1);
  recipe::Recipe opened = recipe;
  const std::shared_ptr<const objective::Objective> objective = train::make_objective(recipe);
  if (checkpoint && !objective->uses_reference()) {
    opened.lora.init_from.clear();  // the checkpoint has its trained state
  } else if (!checkpoint) {
    opened.output_dir += "/debug";  // its later checkpoints are unrelated to the initial weights
  }
  train::RunInputs inputs = train::open_inputs(opened, /*resume=*/true);
  for (const std::string& line : inputs.notices) notice(line);
  if (step < 1 || step > inputs.total_steps) {
    refuse(ErrorKind::kUsage, "the run has no such step", "--step", std::to_string(step),
           "1 to " + std::to_string(inputs.total_steps),
           "metrics.jsonl and the incidents folder say which step was not finite");
  }
  train::RunModel model = train::build_model(inputs);
  train::find_step_references(inputs, model, /*steps=*/1, /*first=*/step - 1);
  if (checkpoint) {
    checkpoint::check_identity(
        *checkpoint, train::run_identity(inputs, model.base_digest),
        recipe::parse_recipe(checkpoint->recipe, "recipe.yaml of the checkpoint"));
    train::copy_stored(checkpoint->trainables, train::named_targets(model.trainables),
                       ErrorKind::kCheckpoint,
                       "checkpoint of step " + std::to_string(checkpoint->step));
  }
  const data::StepSamples samples = train::start_loader(inputs, step - 1)->next();
  HuntInput input = hunt_input(inputs, model, samples, step);
  input.objective = objective;
  if (checkpoint) take_state(*checkpoint, input);
  print_line("weights  " +
             (checkpoint ? checkpoint_text(*checkpoint, step) : "those that training starts from"));
  print_line("batch    of step " + std::to_string(step) + ", epoch " +
             std::to_string(samples.epoch) + ": samples " +
             join_names(train::sample_ids(samples), 8));
  return hunt_and_report(recipe, model.model, input, recipe.output_dir + "/metrics.jsonl",
                         "nothing that is not finite was found");
}

}  // namespace lft::debug
