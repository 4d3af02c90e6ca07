#include "src/train/run/trainer.h"

#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/phase.h"
#include "src/base/signals.h"
#include "src/checkpoint/run_lock.h"
#include "src/io/files.h"
#include "src/train/inputs/output_dir.h"
#include "src/train/inputs/preflight.h"
#include "src/train/inputs/reference.h"
#include "src/train/inputs/template_check.h"
#include "src/train/machine/cpu_allocator.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"
#include "src/train/machine/peak_memory.h"
#include "src/train/memory/out_of_memory.h"
#include "src/train/proof/first_loss.h"
#include "src/train/run/estimate.h"
#include "src/train/run/loss_moved.h"
#include "src/train/run/pairs_judged.h"
#include "src/train/run/rehearsal.h"
#include "src/train/run/run.h"
#include "src/train/run/run_steps.h"
#include "src/train/run/shared_run.h"
#include "src/train/run/step_options.h"
#include "src/train/weights/odd_weights.h"

namespace lft::train {
namespace {

/// Prints the proof that the run will train and returns it for the run's folder.
std::string prove(Run& run) {
  const TrainabilityReport proof = check_trainable(run.model.model, run.model.trainables,
                                                   {&run.optimizer}, run.model.excluded, run.probe);
  for (const std::string& line : trainability_table(proof)) print_line(line);
  release_free_memory();
  print_line(describe_model_start(run, proof));
  if (const std::string line = describe_pairs_start(run); !line.empty()) print_line(line);
  if (const std::string line = estimate_line(run, proof); !line.empty()) print_line(line);
  return trainability_json(proof).dump(2) + "\n";
}

/// Runs the largest micro-batch once and reports its memory. A recovered run reduces memory in its
/// steps when necessary.
void rehearse(Run& run, RunMemory& memory, bool proved) {
  memory.begin("the rehearsal of the run's largest micro-batch");
  const Phase phase("dry run of the largest micro-batch");
  try {
    print_line(
        describe_rehearsal(rehearse_worst(run, run_step_options(run), memory.watch, proved)));
  } catch (const std::exception& error) {
    if (!run.state.recovered || !is_out_of_memory(error)) throw;
  }
}

/// The part of a run that needs memory. `run` outlives it, because the advice after an
/// out-of-memory error is computed from it.
int train_within(RunInputs inputs, std::optional<Run>& run, RunMemory& memory,
                 const Restart& restart, const TrainOptions& options,
                 std::optional<checkpoint::RunLock>& lock) {
  memory.begin("building the model");
  const PeakMemory peak(inputs.device);
  run.emplace(make_run(std::move(inputs)));
  for (const std::string& line : base_warnings(*run)) warning(line);
  const recipe::Recipe& recipe = run->recipe;
  const bool recovered =
      restart.checkpoint && restart.checkpoint->state.value("recovered", io::Json()) == true;
  for (const std::string& line : describe_plan(*run, run->model, recovered)) print_line(line);
  memory.begin("the reference");
  find_references(*run, run->model, *options.ranks);
  uint64_t metrics_bytes = 0;
  std::string proof;
  if (const int signal = agreed_signal(*options.ranks); signal != 0) return stop_exit_code(signal);
  if (restart.checkpoint) {
    memory.begin("the checkpoint's probe");
    const Phase phase("reading the checkpoint", 0, "after the checkpoint is read");
    metrics_bytes = restore(*run, *restart.checkpoint, restart.exact, options.restored);
  } else {
    memory.begin("the trainability proof");
    proof = prove(*run);
  }
  release_free_memory();
  if (const int signal = agreed_signal(*options.ranks); signal != 0) return stop_exit_code(signal);
  if (recipe.train.worst_first) rehearse(*run, memory, /*proved=*/!restart.checkpoint);
  if (const int signal = agreed_signal(*options.ranks); signal != 0) return stop_exit_code(signal);

  if (options.ranks->first()) {
    io::make_dirs(recipe.output_dir);
    if (!lock) lock.emplace(recipe.output_dir);
    keep_indexes(run->data, recipe);
  }
  if (!proof.empty() && options.ranks->first())
    io::write_file_atomic(recipe.output_dir + "/trainability.json", proof);
  if (run->device.is_cpu()) keep_freed_memory();
  return run_steps(*run, memory, peak, options, metrics_bytes, restart.checkpoint.has_value());
}

}  // namespace

int train(const recipe::Recipe& recipe, const TrainOptions& options) {
  take_warnings();  // those of an earlier run in this process
  make_deterministic(recipe.train.deterministic);
  RunInputs inputs = open_shared_inputs(recipe, options);
  std::optional<checkpoint::RunLock> lock;  // now if the folder exists; a new one is created only
                                            // when there is something to write
  if (options.ranks->first()) {
    check_disk_space(inputs.recipe, inputs.files.trainable_parameters);
    if (io::is_directory(recipe.output_dir)) lock.emplace(recipe.output_dir);
  }
  RunMemory memory(inputs.device);
  const Restart restart = options.resume ? find_restart(inputs, *options.ranks) : Restart{};
  for (const std::string& line : inputs.notices) notice(line);
  check_learning_rates(inputs);
  for (const std::string& line :
       {judge_template(recipe, inputs.data.encode, *inputs.data.tokenizer),
        judge_answer_start(inputs.data.encode, *inputs.data.train), judge_global_batch(inputs),
        judge_steps(inputs)})
    if (!line.empty()) warning(line);
  if (recipe.train.worst_first) {  // lengths are measured for it in any case
    for (const std::string& line : check_samples(inputs)) notice(line);
  }
  check_held_out(inputs);
  if (const int signal = agreed_signal(*options.ranks); signal != 0) return stop_exit_code(signal);

  std::optional<Run> run;
  try {
    return train_within(std::move(inputs), run, memory, restart, options, lock);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error) || dynamic_cast<const OutOfMemoryElsewhere*>(&error) != nullptr)
      throw;
    ErrorInfo described = memory.describe();
    RunInputs again = run ? std::move(run->inputs()) : open_inputs(recipe, /*resume=*/true);
    run.reset();
    throw out_of_memory(std::move(described), memory, again);
  }
}

}  // namespace lft::train
