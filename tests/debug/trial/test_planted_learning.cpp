// Planted settings, base and adapter faults that prevent learning. Named by lft debug overfit
// and lft debug bare.
#include "debug/learnable.h"
#include "debug/planted.h"
#include "src/debug/isolate/bare.h"
#include "src/debug/isolate/overfit.h"
#include "src/io/safetensors.h"
#include "src/train/run/trainer.h"

namespace lft::test::planted_learning_test {
namespace {

using Plant = std::function<void(const TinyRun&, Recipe&)>;

Told overfit_told(const Plant& plant, int64_t steps) {
  const TinyRun run;
  make_learnable(run);
  Recipe recipe = run.recipe("out");
  plant(run, recipe);
  return tell(run.dir().path(), [&] {
    return overfit(recipe, {.steps = steps, .out = {}, .print = print_line, .hooks = {}}).healthy()
               ? 0
               : 5;
  });
}

Told bare_told(const Plant& plant) {
  const TinyRun run;
  make_learnable(run);
  Recipe recipe = run.recipe("out");
  recipe.lora.dropout = 0;
  recipe.optim.schedule = "constant";
  recipe.optim.clip_grad_norm = 0;
  recipe.data.eval.clear();
  plant(run, recipe);
  return tell(run.dir().path(), [&] {
    return bare(recipe, {.steps = 12, .print = print_line, .hooks = {}}).healthy() ? 0 : 5;
  });
}

const Plant kNothing = [](const TinyRun&, Recipe&) {};

/// One healthy run is the reference for all cases without a specific one.
Told healthy_overfit(const Plant& twin) {
  static const Told healthy = overfit_told(kNothing, 100);
  return twin ? overfit_told(twin, 100) : healthy;
}
Told healthy_bare(const Plant& twin) {
  static const Told healthy = bare_told(kNothing);
  return twin ? bare_told(twin) : healthy;
}

PlantedBug in_overfit(const std::string& name, const std::string& planted,
                      std::vector<std::string> says, const Plant& plant, const Plant& twin = {}) {
  return {.name = name,
          .planted = planted,
          .command = "lft debug overfit",
          .code = 5,
          .says = std::move(says),
          .run = [plant, twin](bool planted) {
            return planted ? overfit_told(plant, 20) : healthy_overfit(twin);
          }};
}

PlantedBug in_bare(const std::string& name, const std::string& planted,
                   std::vector<std::string> says, const Plant& plant, const Plant& twin = {}) {
  PlantedBug bug = in_overfit(name, planted, std::move(says), plant, twin);
  bug.command = "lft debug bare";
  bug.run = [plant, twin](bool planted) { return planted ? bare_told(plant) : healthy_bare(twin); };
  return bug;
}

void zero_final_norm(const TinyRun& run, Recipe&) {
  change_model(run, [](StoredTensors& tensors) {
    scale_stored(tensors, "language_model.lm_head.weight", 10);
    scale_stored(tensors, "language_model.model.norm.weight", 0);
  });
}

void scale_b(const std::string& adapter, float factor) {
  const std::string path = adapter + "/adapter_model.safetensors";
  std::string bytes = slurp(path);
  const io::SafetensorsFile file(path);
  for (const auto& [name, info] : file.tensors()) {
    if (!name.ends_with("lora_B.weight")) continue;
    auto* const values = reinterpret_cast<float*>(bytes.data() + info.offset);
    for (int64_t i = 0; i < info.numel(); ++i) values[i] *= factor;
  }
  std::ofstream(path, std::ios::binary) << bytes;
}

void train_quietly(const Recipe& recipe) {
  ::testing::internal::CaptureStdout();
  train::train(recipe);
  ::testing::internal::GetCapturedStdout();
}

/// Starts from an adapter trained by a first run, its B `factor` times as large.
Plant start_from_adapter(float factor) {
  return [factor](const TinyRun& run, Recipe& recipe) {
    Recipe first = run.recipe("first");
    first.data.eval.clear();
    train_quietly(first);
    recipe.lora.init_from = run.dir().file("first/adapter");
    scale_b(recipe.lora.init_from, factor);
  };
}

/// The same on a base that is better than guessing.
Told quickstart_told(float factor) {
  const TempDir dir;
  const std::string root = LFT_SOURCE_DIR "/", data = root + "recipes/quickstart/digits/";
  Recipe recipe = read_recipe(
      root + "recipes/quickstart.yaml",
      {"model.path=" + root + "recipes/quickstart/model", "data.train=" + data + "train.json",
       "data.eval=", "data.image_root=" + data + "images", "output_dir=" + dir.file("first"),
       "train.max_steps=10", "checkpoint.at_step_zero=false"});
  train_quietly(recipe);
  recipe.lora.init_from = dir.file("first/adapter");
  recipe.output_dir = dir.file("out");
  scale_b(recipe.lora.init_from, factor);
  return tell(dir.path(), [&] {
    return overfit(recipe, {.steps = 60, .out = {}, .print = print_line, .hooks = {}}).healthy()
               ? 0
               : 5;
  });
}

Plant setting(const std::function<void(Recipe&)>& change) {
  return [change](const TinyRun&, Recipe& recipe) { change(recipe); };
}

const Plant kEps = setting([](Recipe&r) { r.optim.eps = 10; }),
            kAlpha = setting([](Recipe&r) { r.lora.alpha = 1e-6; }),
            kDropout = setting([](Recipe&r) { r.lora.dropout = 0.99; }),
            kClip = setting([](Recipe&r) { r.optim.clip_grad_norm = 1e-12; }),
            kRate = setting([](Recipe&r) { r.optim.lr = 1e-9; });

std::vector<PlantedBug> unlearnt() {
  return {
      in_overfit("BaseWithAZeroedNorm", "the final norm's weights are 0",
                 {"suspect    zeros only out of language_model.model.norm",
                  "all zeros: language_model.model.norm.weight", "nothing to compare"},
                 zero_final_norm),
      {.name = "AdapterWithHugeB",
       .planted = "lora.init_from an adapter of the quickstart with B 3000 times as large",
       .command = "lft debug overfit",
       .code = 5,
       .says = {"suspect    the adapter of lora.init_from",
                "without it; the uniform-guess loss is 6.4615"},
       .run = [](bool planted) { return quickstart_told(planted ? 3000.0F : 1.0F); }},
      in_overfit("AdapterBeyondFp32", "lora.init_from an adapter with B 1e36 times as large",
                 {"suspect    the adapter of lora.init_from", "not finite with it"},
                 start_from_adapter(1e36F), start_from_adapter(1)),
      in_overfit(
          "OverflowOfFp16", "up_proj of layer 0 2^20 times larger, FP16",
          {"suspect    overflow of fp16 in language_model.model.layers.0.mlp",
           "the same pass in fp32 is finite"},
          [](const TinyRun& run, Recipe& recipe) {
            change_model(run, [](StoredTensors& t) { scale_mlp(t, 0, 0x1p20F); });
            recipe.model.base_dtype = "fp32";
            recipe.precision.compute = "fp16";
          },
          setting([](Recipe& recipe) {
            recipe.model.base_dtype = "fp32";
            recipe.precision.compute = "fp16";
          })),
      in_overfit("HugeEps", "optim.eps: 10",
                 {"suspect    optim.eps", "with optim.eps 10.0 -> 1.0e-08"}, kEps),
      in_overfit("TinyAlpha", "lora.alpha: 1e-6, and a projector that learns alone",
                 {"suspect    lora.alpha", "steps of the adapters alone as asked"}, kAlpha),
      in_overfit("DropoutOfNearlyAll", "lora.dropout: 0.99",
                 {"suspect    lora.dropout", "with lora.dropout 0.99 -> 0.0"}, kDropout),
      in_overfit("ClippingToNothing", "optim.clip_grad_norm: 1e-12",
                 {"suspect    optim.clip_grad_norm"}, kClip),
      in_bare("BareZeroedNorm", "the final norm's weights are 0",
              {"found      zeros only out of language_model.model.norm"}, zero_final_norm),
      in_bare("BareAdapterBeyondFp32", "lora.init_from an adapter with B 1e36 times as large",
              {"found      the adapter of lora.init_from"}, start_from_adapter(1e36F),
              start_from_adapter(1)),
      in_bare("BareEps", "optim.eps: 10", {"found      eps of the optimizer"}, kEps),
      in_bare("BareAlpha", "lora.alpha: 1e-6, and a projector that learns alone",
              {"found      scale of the adapters"}, kAlpha),
      in_bare("BareDropout", "lora.dropout: 0.99", {"found      dropout"}, kDropout),
      in_bare("BareClipping", "optim.clip_grad_norm: 1e-12", {"found      clipping"}, kClip),
      in_bare("BareRate", "optim.lr: 1e-9",
              {"found      learning rate too low", "optim.lr 1.0e-09 ->"}, kRate),
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Learning, Planted, ::testing::ValuesIn(unlearnt()), planted_name);

}  // namespace lft::test::planted_learning_test
