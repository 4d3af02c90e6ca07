// Planted differences between two runs, or between a run and its resumption; and weights changed
// unnoticed. Named by lft debug determinism, diff and weights, lft verify-resume, lft
// checkpoint and lft train --resume.
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "cli/run_lft.h"
#include "debug/planted.h"
#include "src/debug/inspect/weights.h"
#include "src/debug/repeat/determinism.h"
#include "src/debug/repeat/diff.h"
#include "src/debug/repeat/diff_lines.h"
#include "src/debug/repeat/verify_resume.h"
#include "src/train/run/trainer.h"
#include "src/train/step/step.h"
#include "train/run_files.h"

namespace lft::test::planted_repeat_test {
namespace {

using GradientHook = std::function<void(int64_t, Optimizer&)>;

/// The next float up: the smallest possible change.
void nudge(const at::Tensor& tensor) {
  float* first = tensor.variable_data().data_ptr<float>();
  *first = std::nextafter(*first, INFINITY);
}

/// lft debug determinism with `plant` in the second of its runs.
PlantedBug in_second_run(const std::string& name, const std::string& planted,
                         std::vector<std::string> says, const TraceOptions& plant) {
  return {.name = name,
          .planted = planted,
          .command = "lft debug determinism",
          .code = 5,
          .says = std::move(says),
          .run = [plant](bool planted) {
            const TinyRun run(10);
            Recipe recipe = run.recipe("out");
            recipe.data.eval.clear();
            recipe.lora.dropout = 0.25;
            recipe.train.grad_accum = 2;
            const auto trace = [&](const Recipe& of_run, int number) {
              return trace_steps(
                  of_run, planted && number == 1 ? plant : TraceOptions{.steps = plant.steps});
            };
            return tell(run.dir().path(), [&] {
              return check_determinism(recipe, {.steps = plant.steps, .trace = trace});
            });
          }};
}

std::vector<PlantedBug> in_repetitions() {
  const std::string module = "language_model.model.layers.1.self_attn.o_proj";
  return {
      in_second_run("NondeterministicOrder", "two samples of step 2 change places",
                    {"part\n  where: step 2, micro-batch 0: batch id of sample row",
                     "the other one went on with batch id of sample row"},
                    {.steps = 3,
                     .samples_ready =
                         [](int64_t step, StepSamples& samples) {
                           if (step == 2) std::swap(samples.micro[0][0], samples.micro[0][1]);
                         }}),
      in_second_run("NondeterministicDecoding", "one bit of a pixel in step 1",
                    {"part\n  where: step 1, micro-batch 1: batch image 0 of sample row"},
                    {.steps = 2,
                     .samples_ready =
                         [](int64_t step, StepSamples& samples) {
                           if (step == 1) samples.micro[1][0].images[0].chw[7] ^= 1;
                         }}),
      in_second_run("NondeterministicOp", "an output of a module one bit off in step 2",
                    {"part\n  where: step 2, micro-batch 0: output 0 of " + module,
                     "this module's own forward pass"},
                    {.steps = 3,
                     .output_ready =
                         [module](int64_t step, const std::string& path,
                                  const std::vector<at::Tensor>& outputs) {
                           if (step == 2 && path == module) nudge(outputs.front());
                         }}),
      in_second_run("NondeterministicBackwardPass", "a gradient one bit off in step 2",
                    {"part\n  where: step 2: gradient ", "the backward pass, at this tensor"},
                    {.steps = 3,
                     .gradients_ready =
                         [](int64_t step, Optimizer& optimizer) {
                           if (step == 2) nudge(optimizer.slots()[3].param.tensor.grad());
                         }}),
      in_second_run(
          "NondeterministicOptimizer", "a moment of Adam's changed in step 2",
          {"part\n  where: step 2: weight ", "all gradients were the same: the optimizer"},
          {.steps = 2,
           .gradients_ready =
               [](int64_t step, Optimizer& optimizer) {
                 if (step == 2) optimizer.slots().back().moment("exp_avg").add_(1);
               }}),
  };
}

/// Four steps with a checkpoint after each.
Recipe short_run(const TinyRun& run, const std::string& out) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.train.max_steps = 4;
  recipe.checkpoint.every_steps = 1;
  recipe.checkpoint.keep = 100;
  return recipe;
}

/// lft debug diff over two runs, the second with other settings or a hook.
Told diff_of_two(const std::function<void(const TinyRun&, Recipe&)>& change,
                 const GradientHook& hook) {
  const TinyRun run;
  const Recipe a = short_run(run, "a");
  Recipe b = short_run(run, "b");
  tell("", [&] { return train::train(a); });
  if (change) change(run, b);
  tell("", [&] { return train::train(b, {.gradients_ready = hook}); });
  return tell(run.dir().path(), [&] {
    const RunDiff diff = diff_runs(a.output_dir, b.output_dir);
    for (const std::string& line : diff_lines(diff)) std::printf("%s\n", line.c_str());
    if (diff.step == 0) return 0;
    std::printf("%s\n", parting_text(diff).c_str());
    return 5;
  });
}

/// One healthy pair is the reference for all of them, here and below.
PlantedBug in_one_of_two(const std::string& name, const std::string& planted,
                         std::vector<std::string> says,
                         const std::function<void(const TinyRun&, Recipe&)>& change,
                         const GradientHook& hook = {}) {
  return {.name = name,
          .planted = planted,
          .command = "lft debug diff",
          .code = 5,
          .says = std::move(says),
          .run = [change, hook](bool planted) {
            static const Told healthy = diff_of_two({}, {});
            return planted ? diff_of_two(change, hook) : healthy;
          }};
}

std::vector<PlantedBug> in_two_runs() {
  return {
      in_one_of_two("ChangedAnswersUnderTheSameIds", "the second run's rows have other answers",
                    {"step 1: the samples part: the same ids, other tokens", "inputs      data"},
                    [](const TinyRun& run, Recipe&) {
                      Json rows = Json::parse(slurp(run.dir().file("rows.json")));
                      for (Json& row : rows) row["conversations"][1]["value"] = "something longer";
                      run.dir().write("rows.json", rows.dump());
                    }),
      in_one_of_two("AnotherSchedule", "the second run's optim.schedule: linear",
                    {"the learning rate parts", "optim.schedule"},
                    [](const TinyRun&, Recipe& recipe) { recipe.optim.schedule = "linear"; }),
      in_one_of_two("AGradientThatDiffers", "a gradient of step 2 1% larger in the second run",
                    {"step 2: the numbers part: the same loss, another gradient norm"}, {},
                    [](int64_t step, Optimizer& optimizer) {
                      if (step == 2)
                        optimizer.slots().back().param.tensor.mutable_grad().mul_(1.01);
                    }),
      {.name = "WeightChangedBehindTheOptimizer",
       .planted = "an element of one lora_A moved at step 4, by nobody's update",
       .command = "lft debug weights",
       .code = 0,
       .says = {"1 of 16 modules changed", "language_model.model.layers.0.self_attn.k_proj"},
       .run =
           [](bool planted) {
             const TinyRun run;
             const Recipe a = short_run(run, "a"), b = short_run(run, "b");
             const auto move = [&](int64_t step, Optimizer& optimizer) {
               const at::NoGradGuard no_grad;
               if (!planted || step != 4) return;
               for (Slot& slot : optimizer.slots()) {
                 if (slot.param.name.ends_with("layers.0.self_attn.k_proj.lora_A.weight"))
                   slot.param.tensor.view(-1)[7] += 0.5;
               }
             };
             tell("", [&] { return train::train(a); });
             tell("", [&] { return train::train(b, {.gradients_ready = move}); });
             return tell(run.dir().path(), [&] {
               for (const std::string& line :
                    weights_lines(compare_weights(a.output_dir, b.output_dir)))
                 std::printf("%s\n", line.c_str());
               return 0;
             });
           }},
  };
}

/// A run of four steps that is corrupted and then resumed to its sixth.
Told resume_spoilt(const std::function<void(const TinyRun&, Recipe&)>& spoil) {
  const TinyRun run;
  Recipe recipe = short_run(run, "out");
  tell("", [&] { return train::train(recipe); });
  recipe.train.max_steps = 6;
  spoil(run, recipe);
  return tell(run.dir().path(), [&] { return train::train(recipe, {.resume = true}); });
}

PlantedBug in_resumption(const std::string& name, const std::string& planted, int code,
                         std::vector<std::string> says,
                         const std::function<void(const TinyRun&, Recipe&)>& spoil) {
  return {.name = name,
          .planted = planted,
          .command = "lft train --resume",
          .code = code,
          .says = std::move(says),
          .run = [spoil](bool planted) {
            static const Told healthy = resume_spoilt([](const TinyRun&, Recipe&) {});
            return planted ? resume_spoilt(spoil) : healthy;
          }};
}

std::string step_file(const Recipe& recipe, int step, const std::string& file) {
  return recipe.output_dir + "/checkpoints/step-" + std::to_string(step) + "/" + file;
}

void flip_byte(const std::string& path) {
  std::string bytes = slurp(path);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic(path, bytes);
}

std::vector<PlantedBug> in_resumptions() {
  return {
      in_resumption("ResumedWithChangedData",
                    "two rows of data.train change places between stop and resumption", 4,
                    {"the run is not the one that was saved", "data"},
                    [](const TinyRun& run, Recipe&) {
                      Json rows = Json::parse(slurp(run.dir().file("rows.json")));
                      std::swap(rows[0], rows[1]);
                      run.dir().write("rows.json", rows.dump());
                    }),
      in_resumption("ResumedWithAnotherRate", "optim.lr: 0.001 instead of 0.01", 4,
                    {"the run is not the one that was saved", "optim.lr"},
                    [](const TinyRun&, Recipe& recipe) { recipe.optim.lr = 1e-3; }),
      in_resumption("DamagedCheckpoint",
                    "one bit in the moments of the newest checkpoint: the one before it is taken",
                    0, {"optimizer.safetensors", "warning: ", "step-4"},
                    [](const TinyRun&, Recipe& recipe) {
                      flip_byte(step_file(recipe, 4, "optimizer.safetensors"));
                    }),
      in_resumption("OnlyDamagedCheckpoints", "the weights of every checkpoint cut short", 4,
                    {"trainables.safetensors", "step-4"},
                    [](const TinyRun&, Recipe& recipe) {
                      for (int step = 0; step <= 4; ++step) {
                        const std::string file = step_file(recipe, step, "trainables.safetensors");
                        fs::resize_file(file, fs::file_size(file) - 1);
                      }
                    }),
      {.name = "DamagedCheckpointOnTheDisk",
       .planted = "one bit in the weights of step 2",
       .command = "lft checkpoint verify",
       .code = 4,
       .says = {"trainables.safetensors", "step-2"},
       .run =
           [](bool planted) {
             const TinyRun run;
             const Recipe recipe = short_run(run, "out");
             tell("", [&] { return train::train(recipe); });
             if (planted) flip_byte(step_file(recipe, 2, "trainables.safetensors"));
             const Ran ran = run_lft("checkpoint verify " + recipe.output_dir);
             return Told{ran.code, ran.out + ran.err};
           }},
      {.name = "MomentsLostOnResumption",
       .planted = "Adam's first moments zeroed in the process that resumes",
       .command = "lft verify-resume",
       .code = 4,
       .says = {"the resumed run is not the run that was never stopped", "trainables.safetensors",
                "values differ, by up to"},
       .run =
           [](bool planted) {
             const TinyRun run;
             const auto part = [&](const RunPart& part) {
               if (!planted || !part.resume) return train_part(part);
               PartEnd end{.exit_code = 0, .step = part.stop_after_step, .next_ids = {}};
               const auto lose = [](int64_t, Optimizer& optimizer) {
                 for (Slot& slot : optimizer.slots()) slot.moment("exp_avg").zero_();
               };
               train::train(part.recipe, {.resume = true,
                                          .gradients_ready = lose,
                                          .stop_after_step = part.stop_after_step,
                                          .part_done = [&](int64_t, const StepSamples& next) {
                                            end.next_ids = sample_ids(next);
                                          }});
               return end;
             };
             return tell(run.dir().path(), [&] {
               return verify_resume(short_run(run, "out"),
                                    {.steps = 1, .out = {}, .run_part = part});
             });
           }},
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Repetition, Planted, ::testing::ValuesIn(in_repetitions()), planted_name);
INSTANTIATE_TEST_SUITE_P(TwoRuns, Planted, ::testing::ValuesIn(in_two_runs()), planted_name);
INSTANTIATE_TEST_SUITE_P(Resumption, Planted, ::testing::ValuesIn(in_resumptions()), planted_name);

}  // namespace lft::test::planted_repeat_test
