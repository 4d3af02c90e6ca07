#include "src/train/check.h"

#include <cstdio>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/train/memory_plan.h"
#include "src/train/peak_memory.h"
#include "src/train/run.h"

namespace lft {
namespace {

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", escape_text(line, 4000).c_str());
  std::fflush(stdout);
}

/// Before the model is loaded: what is free now is free for it. False where it does not fit.
bool report_memory(RunInputs& inputs) {
  const std::vector<SampleLength>& lengths = sample_lengths(inputs);
  const MicroBatchShape worst = worst_micro_batch(inputs, lengths);
  const MemoryPlan plan = plan_memory(inputs, worst);
  const std::vector<Mitigation> changes = mitigations(inputs, lengths, plan);
  print(describe_memory(plan, worst, *inputs.train, changes));
  return plan.peak <= plan.free;
}

}  // namespace

int check(const Recipe& recipe) {
  make_deterministic(recipe.train.deterministic);
  RunInputs inputs = open_inputs(recipe);
  check_disk_space(inputs);
  for (const std::string& line : inputs.notices) notice(line);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);

  const bool fits = report_memory(inputs);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);

  const PeakMemory peak(inputs.device);
  Run run = make_run(std::move(inputs));
  print(describe_plan(run.inputs, run.model));
  Proof proof = prove_trainable(run.model.model, run.model.trainables, {&run.optimizer}, run.model.excluded, run.probe);
  prove_second_step(run.model.model, run.model.trainables, run.probe, proof);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);
  print(proof_table(proof, /*collapsed=*/false));
  print({"memory     " + format_bytes(peak.growth()) + " were taken by the model and the proof's micro-batch"});
  if (!fits) warning("the run needs more memory than is free: by the prediction above it stops in its first minute");
  print({"it will train"});
  return 0;
}

}  // namespace lft
