#include "src/train/check/check.h"

#include <optional>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/train/inputs/output_dir.h"
#include "src/train/inputs/preflight.h"
#include "src/train/inputs/template_check.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"
#include "src/train/machine/peak_memory.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/memory/out_of_memory.h"
#include "src/train/run/estimate.h"
#include "src/train/run/pairs_judged.h"
#include "src/train/run/run.h"
#include "src/train/weights/odd_weights.h"

namespace lft::train {
namespace {

constexpr double kImageSeconds = 1;  // seconds of decoding before anything is loaded

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) print_line(escape_text(line, 4000));
}

/// Runs before the model is loaded: the free memory is measured then. kResource if it does not fit.
void report_memory(RunInputs& inputs) {
  const std::vector<data::SampleLength>& lengths = sample_lengths(inputs.data);
  const MicroBatchShape worst = worst_micro_batch(inputs, lengths);
  MemoryPlan plan = plan_memory(inputs, worst);
  plan.free = free_memory_now(inputs.device);
  const std::vector<Mitigation> changes = mitigations(inputs, lengths, plan);
  print(describe_memory(plan, worst, *inputs.data.train, changes));
  if (plan.fits()) return;
  refuse(ErrorKind::kResource,
         "the run needs more memory than is free: it would stop in its first minute",
         inputs.device.str() + ", " + plan.moment, format_bytes(plan.free) + " free",
         format_bytes(plan.peak) + ", as predicted above", best_changes(changes));
}

/// Runs the parts that need memory. `run` outlives this function, as in train().
int check_within(RunInputs inputs, std::optional<Run>& run, RunMemory& memory) {
  report_memory(inputs);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);

  memory.begin("building the model");
  const PeakMemory peak(inputs.device);
  run.emplace(make_run(std::move(inputs)));
  for (const std::string& line : base_warnings(*run)) warning(line);
  print(describe_plan(*run, run->model));
  memory.begin("the trainability proof");
  TrainabilityReport proof = check_trainable(run->model.model, run->model.trainables,
                                             {&run->optimizer}, run->model.excluded, run->probe);
  prove_second_step(run->model.model, run->model.trainables, run->probe, proof);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);
  print(trainability_table(proof));
  print({describe_model_start(*run, proof)});
  refuse_non_finite_start(*run, proof);
  if (const std::string line = describe_pairs_start(*run); !line.empty()) print({line});
  print({"memory     " + format_bytes(peak.growth()) +
         " were taken by the model and the proof's micro-batch"});
  if (const std::string line = estimate_line(*run, proof); !line.empty()) print({line});
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);
  print({"it will train"});
  return 0;
}

}  // namespace

int check(const recipe::Recipe& recipe) {
  make_deterministic(recipe.train.deterministic);
  // An existing run does not prevent checking the recipe again.
  const bool has_run = contains_run(recipe);
  check_output_dir(recipe, /*resume=*/has_run);
  RunInputs inputs = open_inputs(recipe, /*resume=*/false, /*writes=*/false);
  if (has_run)
    notice(
        "output_dir contains a run already: lft train resumes it with --resume, and a new run "
        "needs another output_dir (" +
        recipe.output_dir + ")");
  check_disk_space(inputs.recipe, inputs.files.trainable_parameters);
  for (const std::string& line : inputs.notices) notice(line);
  check_learning_rates(inputs);
  for (const std::string& line : check_samples(inputs)) notice(line);
  check_held_out(inputs);
  for (const std::string& line :
       {judge_template(recipe, inputs.data.encode, *inputs.data.tokenizer),
        judge_answer_start(inputs.data.encode, *inputs.data.train), judge_global_batch(inputs),
        judge_steps(inputs)})
    if (!line.empty()) warning(line);
  for (const std::string& line : check_images(inputs, kImageSeconds)) notice(line);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);

  RunMemory memory(inputs.device);
  std::optional<Run> run;
  try {
    return check_within(std::move(inputs), run, memory);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    ErrorInfo described = memory.describe();
    RunInputs again =
        run ? std::move(run->inputs()) : open_inputs(recipe, /*resume=*/false, /*writes=*/false);
    run.reset();
    throw out_of_memory(std::move(described), memory, again);
  }
}

}  // namespace lft::train
