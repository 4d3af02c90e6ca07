#include "src/train/check.h"

#include <algorithm>
#include <cstdio>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/train/check_memory.h"
#include "src/train/run.h"

namespace lft {
namespace {

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", escape_text(line, 4000).c_str());
  std::fflush(stdout);
}

void report_memory(Run& run, double peak) {
  size_t tokens = 0;
  for (const Sample& sample : run.probe.samples) tokens = std::max(tokens, sample.input_ids.size());
  const MemoryPlan plan = plan_memory(*run.model.model, run.model.trainables, run.inputs.device, peak);
  print(describe_memory(plan, run.probe.samples.size(), tokens));
  if (plan.peak > plan.free) warning("the run needs more memory than is free; lower train.batch_size, lora.rank or data.max_tokens");
}

}  // namespace

int check(const Recipe& recipe) {
  make_deterministic(recipe.train.deterministic);
  RunInputs inputs = open_inputs(recipe);
  check_disk_space(inputs);
  for (const std::string& line : inputs.notices) notice(line);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);

  Run run = make_run(std::move(inputs));
  print(describe_plan(run.inputs, run.model));
  const PeakMemory peak(run.inputs.device);
  Proof proof = prove_trainable(run.model.model, run.model.trainables, {&run.optimizer}, run.model.excluded, run.probe);
  const double peak_bytes = peak.bytes();
  prove_second_step(run.model.model, run.model.trainables, run.probe, proof);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);
  print(proof_table(proof, /*collapsed=*/false));
  report_memory(run, peak_bytes);
  print({"it will train"});
  return 0;
}

}  // namespace lft
