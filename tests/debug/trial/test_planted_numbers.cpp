// Planted non-finite values, and precisions and settings that cause them. Named by lft
// debug nan, lft replay and lft check.
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <limits>

#include "debug/exercise.h"
#include "debug/patient.h"
#include "debug/planted.h"
#include "src/debug/nan/nan_text.h"
#include "src/debug/nan/replay.h"
#include "src/train/check/check.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"

namespace lft::test::planted_numbers_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

/// lft debug nan on the first step of a run over a model corrupted by `change`.
Told hunt_model(const std::string& compute, bool planted,
                const std::function<void(StoredTensors&)>& change) {
  const TinyRun run;
  if (planted) change_model(run, change);
  Recipe recipe = run.recipe("out");
  recipe.model.base_dtype = "fp32";
  recipe.model.check_weights = false;
  recipe.precision.compute = compute;
  return tell(run.dir().path(), [&] { return debug_nan(recipe, 1); });
}

/// The report of lft debug nan for a step with weights or a batch corrupted in memory.
Told hunt_patient(const std::string& compute, bool planted,
                  const std::function<void(Patient&)>& plant) {
  Patient patient(compute);
  if (planted) plant(patient);
  return tell(patient.run.dir().path(), [&] {
    const Hunt hunt = patient.hunt();
    std::fputs(report(hunt, patient.input).c_str(), stdout);
    if (hunt.found()) throw_found(hunt, patient.input, {});
    return 0;
  });
}

/// The hooks over the exercise's three layers, at the step at which it broke.
Told hunt_exercise(bool planted, const Bend& bend) {
  Exercise exercise(bend);
  exercise.step = planted ? 51 : 50;
  return tell("", [&] {
    const PassReport pass = exercise.hunt();
    if (!pass.forward) return 0;
    std::printf("step %lld: %s in %s\n", static_cast<long long>(exercise.step),
                pass.forward->op.c_str(), pass.forward->module.c_str());
    for (const Hint& hint : pass.forward->hints)
      std::printf("%s: %s\n", hint.name.c_str(), hint.evidence.c_str());
    return static_cast<int>(ErrorKind::kNumeric);
  });
}

PlantedBug overflow_in_layer(int layer) {
  const std::string number = std::to_string(layer);
  return {.name = "ActivationOverflowInLayer" + number,
          .planted = "up_proj of layer " + number + " 2^17 times larger, FP16",
          .command = "lft debug nan",
          .code = 5,
          .says = {"the forward pass is not finite from", kLayers + number + ".mlp.up_proj on",
                   "overflow of fp16", "in fp32 the same is finite: loss",
                   "step 1, micro-batch 0, samples row"},
          .run = [=](bool planted) {
            return hunt_model("fp16", planted,
                              [=](StoredTensors& t) { scale_mlp(t, layer, 0x1p17f); });
          }};
}

/// lft train until it breaks, then the hunt on the step named by its error; on step 3 of a run
/// that did not break.
Told train_and_hunt(const std::function<void(Recipe&)>& change, const TrainOptions& options = {}) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.precision.compute = "fp16";
  recipe.precision.loss_scale.init = 1;  // an overflow is not skipped
  recipe.precision.recovery = "stop";
  recipe.train.max_steps = 9;
  recipe.optim.schedule = "constant";
  recipe.checkpoint.every_steps = 1;
  recipe.checkpoint.keep = 100;
  change(recipe);
  return tell(run.dir().path(), [&] {
    int64_t step = 3;
    try {
      train::train(recipe, options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kNumeric) throw;
      step = std::stoll(error.info().where.substr(std::string("step ").size()));
    }
    return debug_nan(recipe, step);
  });
}

std::vector<PlantedBug> in_weights_and_batches() {
  return {
      {.name = "NanInAFrozenWeight",
       .planted = "element 5 of a v_proj in the model's file, model.check_weights off",
       .command = "lft debug nan",
       .code = 5,
       .says = {"weight language_model.model.layers.1.self_attn.v_proj.weight",
                "1 NaN of 512, the first at flat index 5", "op       aten::mm",
                "inputs were finite: no: it read "
                "language_model.model.layers.1.self_attn.v_proj.weight"},
       .run =
           [](bool planted) {
             return hunt_model("fp32", planted, [](StoredTensors& t) {
               stored_values(t, kLayers + "1.self_attn.v_proj.weight")[5] = kNaN;
             });
           }},
      {.name = "NanInAModelFile",
       .planted = "the last element of a CLIP bias in the model's file",
       .command = "lft check",
       .code = 3,
       .says = {"vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias"},
       .run =
           [](bool planted) {
             const TinyRun run;
             if (planted)
               change_model(run, [](StoredTensors& t) {
                 stored_values(t, "vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias")[39] =
                     kNaN;
               });
             return tell(run.dir().path(), [&] { return check(run.recipe("out")); });
           }},
      {.name = "NanInAnAdapterWeight",
       .planted = "an element of a lora_B in memory, BF16",
       .command = "lft debug nan",
       .code = 5,
       .says = {"weight language_model.model.layers.0.mlp.gate_proj.adapter.lora_B", "1 NaN of",
                "it read language_model.model.layers.0.mlp.gate_proj.adapter.lora_B"},
       .run =
           [](bool planted) {
             return hunt_patient("bf16", planted, [](Patient& p) {
               p.weight(kLayers + "0.mlp.gate_proj.adapter.lora_B").view(-1)[0] = kNaN;
             });
           }},
      {.name = "NanPixel",
       .planted = "a pixel of the third image of the batch",
       .command = "lft debug nan",
       .code = 5,
       .says = {"pixels of sample row", "1 NaN of 768",
                "vision_tower.vision_model.embeddings.patch_embedding"},
       .run =
           [](bool planted) {
             return hunt_patient("fp32", planted,
                                 [](Patient& p) { p.input.micro[0].pixels[2][1][3][3] = kNaN; });
           }},
      {.name = "InfinitePixels",
       .planted =
           "all pixels of the first image, as a division by a standard deviation of 0 leaves them",
       .command = "lft debug nan",
       .code = 5,
       .says = {"pixels of sample row", "768 inf of 768, the first at flat index 0"},
       .run =
           [](bool planted) {
             return hunt_patient("fp32", planted,
                                 [](Patient& p) { p.input.micro[0].pixels[0].fill_(kInf); });
           }},
      {.name = "LabelOutOfRange",
       .planted = "the last label of row 1 is the vocabulary's size",
       .command = "lft debug nan",
       .code = 5,
       .says = {"labels in micro-batch 0",
                "1 outside [0, 264), the first is 264 at row 1, position"},
       .run =
           [](bool planted) {
             return hunt_patient("fp32", planted, [](Patient& p) {
               at::Tensor& labels = p.input.micro[0].labels_bt;
               labels[1][(labels[1] != -100).nonzero()[-1][0].item<int64_t>()] = 264;
             });
           }},
      {.name = "TokenOutOfRange",
       .planted = "a token id of -7 in row 0",
       .command = "lft debug nan",
       .code = 5,
       .says = {"token ids in micro-batch 0", "the first is -7 at row 0, position 0"},
       .run =
           [](bool planted) {
             return hunt_patient("fp32", planted,
                                 [](Patient& p) { p.input.micro[0].input_ids_bt[0][0] = -7; });
           }},
  };
}

std::vector<PlantedBug> in_precision_and_ops() {
  return {
      overflow_in_layer(0),
      overflow_in_layer(1),
      {.name = "DigitsLostUnderFp16",
       .planted = "up_proj of layer 1 2^22 times smaller, where FP16 keeps no digit: all is "
                  "finite, and wrong",
       .command = "lft debug nan",
       .code = 0,
       .says = {"fp32 pass differs at language_model.model.layers.1.mlp.up_proj"},
       .run =
           [](bool planted) {
             return hunt_patient("fp16", planted, [](Patient& p) {
               p.scale(kLayers + "1.mlp.up_proj.weight", 0x1p-22);
               p.input.loss_scale = 1;
             });
           }},
      {.name = "LossScaleTooHigh",
       .planted = "precision.loss_scale.init: 2^30, FP16",
       .command = "lft debug nan",
       .code = 5,
       .says = {"the backward pass is not finite from TokenLogprobsFunction in language_model",
                "loss scale too high: at loss scale 1.074e+09"},
       .run =
           [](bool planted) {
             const TinyRun run;
             Recipe recipe = run.recipe("out");
             recipe.precision.compute = "fp16";
             if (planted) recipe.precision.loss_scale.init = 0x1p30;
             return tell(run.dir().path(), [&] { return debug_nan(recipe, 1); });
           }},
      {.name = "SoftmaxOverflow",
       .planted = "q_proj and k_proj of layer 0 10^20 times larger",
       .command = "lft debug nan",
       .code = 5,
       .says = {"overflow before a softmax: the largest attention score is",
                "module   language_model.model.layers.0.self_attn\n",
                "aten::scaled_dot_product_attention"},
       .run =
           [](bool planted) {
             return hunt_model("fp32", planted, [](StoredTensors& t) {
               for (const char* name : {"q_proj", "k_proj"})
                 scale_stored(t, kLayers + "0.self_attn." + name + ".weight", 1e20f);
             });
           }},
      {.name = "LogOfZero",
       .planted = "the exercise: layer 2 takes a log behind step 50",
       .command = "the hunt's hooks",
       .code = 5,
       .says = {"step 51: aten::log in layer2", "log of zero: 1 of 512 inputs of aten::log are 0"},
       .run =
           [](bool planted) {
             return hunt_exercise(
                 planted, [](const at::Tensor& x) { return at::log(x - x.detach().min()); });
           }},
      {.name = "SquareRootOfANegative",
       .planted = "layer 2 takes a square root behind step 50",
       .command = "the hunt's hooks",
       .code = 5,
       .says = {"step 51: aten::sqrt in layer2", "square root of a negative number:",
                "inputs of aten::sqrt are negative, the lowest is -"},
       .run =
           [](bool planted) {
             return hunt_exercise(planted, [](const at::Tensor& x) { return at::sqrt(x); });
           }},
      {.name = "NanFromOutsideTheBatch",
       .planted = "a NaN in a gradient of step 4, behind the backward pass, BF16",
       .command = "lft train, lft replay",
       .code = 0,
       .says = {"step 4: a gradient is not finite; nothing was stepped",
                "the replay is finite: the bad value came from outside the batch"},
       .run =
           [](bool planted) {
             const TinyRun run;
             Recipe recipe = run.recipe("out");
             recipe.precision.compute = "bf16";
             const auto spoil = [&](int64_t step, Optimizer& optimizer) {
               if (planted && step == 4)
                 optimizer.slots()[1].param.tensor.mutable_grad().view(-1)[0] = kNaN;
             };
             return tell(run.dir().path(), [&] {
               const int code = train::train(recipe, {.gradients_ready = spoil});
               const std::string incident = recipe.output_dir + "/incidents/step-4";
               return code == 0 && std::filesystem::exists(incident) ? replay(incident) : code;
             });
           }},
      {.name = "NanWeightBehindAnUpdate",
       .planted = "a NaN in an adapter's weight at step 4, behind the optimizer",
       .command = "lft train",
       .code = 5,
       .says = {"a tensor of the checkpoint is not finite; nothing was saved",
                "multi_modal_projector.linear_1.bias"},
       .run =
           [](bool planted) {
             const TinyRun run;
             Recipe recipe = run.recipe("out");
             recipe.checkpoint.every_steps = 1;
             const auto spoil = [&](int64_t step, Optimizer& optimizer) {
               const at::NoGradGuard no_grad;
               if (planted && step == 4) optimizer.slots()[1].param.tensor.view(-1)[0] = kNaN;
             };
             return tell(run.dir().path(),
                         [&] { return train::train(recipe, {.gradients_ready = spoil}); });
           }},
  };
}

std::vector<PlantedBug> in_the_rate() {
  return {
      {.name = "LearningRateTooHighWithoutWarmup",
       .planted = "optim.lr: 10, optim.warmup_ratio: 0",
       .command = "lft train, lft debug nan",
       .code = 5,
       .says = {"learning rate too high, without warm-up: the largest trained weight is",
                "after rates that sum to", "optim.lr 10", "step 3, micro-batch 0"},
       .run =
           [](bool planted) {
             return train_and_hunt([&](Recipe& recipe) {
               if (planted) recipe.optim.lr = 10;
               if (planted) recipe.optim.warmup_ratio = 0;
             });
           }},
      {.name = "ExplodingBatchWithoutClipping",
       .planted = "optim.clip_grad_norm: 0 and thirty times the learning rate; the gradients of "
                  "step 4 are 1000 times the others'",
       .command = "lft train, lft debug nan",
       .code = 5,
       .says = {"no gradient clipping: optim.clip_grad_norm is 0, and the gradient norm reached",
                "times the median of the run", "at step 4, "},
       .run =
           [](bool planted) {
             const auto explode = [&](int64_t step, Optimizer& optimizer) {
               for (at::Tensor gradient : optimizer.gradients()) {
                 if (planted && step == 4 && gradient.defined()) gradient.mul_(1000);
               }
             };
             return train_and_hunt(
                 [&](Recipe& recipe) {
                   if (planted) recipe.optim.lr = 0.3;
                   if (planted) recipe.optim.clip_grad_norm = 0;
                 },
                 {.gradients_ready = explode});
           }},
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Values, Planted, ::testing::ValuesIn(in_weights_and_batches()),
                         planted_name);
INSTANTIATE_TEST_SUITE_P(Ops, Planted, ::testing::ValuesIn(in_precision_and_ops()), planted_name);
INSTANTIATE_TEST_SUITE_P(Rate, Planted, ::testing::ValuesIn(in_the_rate()), planted_name);

}  // namespace lft::test::planted_numbers_test
