#include "src/train/check.h"

#include <algorithm>
#include <cstdio>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/train/check_memory.h"
#include "src/train/proof.h"
#include "src/train/setup.h"

namespace lft {
namespace {

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::printf("%s\n", escape_text(line, 4000).c_str());
  std::fflush(stdout);
}

void report_memory(const RunInputs& inputs, RunModel& model, const std::vector<Trainable>& trainables, const Probe& probe, double peak) {
  size_t tokens = 0;
  for (const Sample& sample : probe.samples) tokens = std::max(tokens, sample.input_ids.size());
  const MemoryPlan plan = plan_memory(*model.model, trainables, inputs.device, peak);
  print(describe_memory(plan, probe.samples.size(), tokens));
  if (plan.peak > plan.free) warning("the run needs more memory than is free; lower train.batch_size, lora.rank or data.max_tokens");
}

}  // namespace

int check(const Recipe& recipe) {
  RunInputs inputs = open_inputs(recipe);
  RunModel model = build_model(inputs, &inputs.notices);
  const Learnable learnable = never_learning(model.model->config, model.trainables);
  for (const std::string& line : inputs.notices) notice(line);
  print(describe_plan(inputs, model));
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);

  AdamW optimizer = make_optimizer(recipe, learnable.kept);
  const Probe probe = find_probe(inputs, learnable.kept);
  const PeakMemory peak(inputs.device);
  Proof proof = prove_trainable(model.model, learnable.kept, {&optimizer}, learnable.excluded, probe);
  const double peak_bytes = peak.bytes();
  prove_second_step(model.model, learnable.kept, probe, proof);
  if (const int signal = requested_signal(); signal != 0) return stop_exit_code(signal);
  print(proof_table(proof, /*collapsed=*/false));
  report_memory(inputs, model, learnable.kept, probe, peak_bytes);
  print({"it will train"});
  return 0;
}

}  // namespace lft
