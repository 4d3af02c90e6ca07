// Planted faults that prevent a run from learning. Named by lft check and its trainability check,
// the final check of lft train, lft debug overfit and lft debug bare.
#include "debug/learnable.h"
#include "debug/planted.h"
#include "src/debug/isolate/bare.h"
#include "src/debug/isolate/overfit.h"
#include "src/train/check/check.h"
#include "src/train/optim/adamw.h"
#include "src/train/run/trainer.h"
#include "train/proof_fixture.h"

namespace lft::test::planted_training_test {
using namespace lft::lora;
using namespace lft::ops;
namespace {

const std::string kUp = "language_model.model.layers.0.mlp.up_proj";

/// lft check on a tiny run.
PlantedBug in_recipe(const std::string& name, const std::string& planted, int code,
                     std::vector<std::string> says,
                     const std::function<void(const TinyRun&, Recipe&)>& plant,
                     const std::function<void(Recipe&)>& base = {}) {
  return {.name = name,
          .planted = planted,
          .command = "lft check",
          .code = code,
          .says = std::move(says),
          .run = [plant, base](bool planted) {
            const TinyRun run;
            Recipe recipe = run.recipe("out");
            if (base) base(recipe);
            if (planted) plant(run, recipe);
            return tell(run.dir().path(), [&] { return check(recipe); });
          }};
}

/// The trainability check on a model whose parts a test may modify.
struct Proven : ProofFixture {
  void TestBody() override {}
  using ProofFixture::adapt;
  using ProofFixture::build;
  using ProofFixture::make_optimizer;
  using ProofFixture::model;
  using ProofFixture::optimizer;
  using ProofFixture::probe;
  using ProofFixture::tensor;
  using ProofFixture::trainables;
  std::vector<Optimizer*> optimizers() {
    return second ? std::vector{optimizer.get(), second.get()} : std::vector{optimizer.get()};
  }
  std::unique_ptr<Optimizer> second;
};

PlantedBug in_ownership(const std::string& name, const std::string& planted,
                        std::vector<std::string> says, const std::function<void(Proven&)>& plant) {
  return {.name = name,
          .planted = planted,
          .command = "the proof of lft check and lft train",
          .code = 2,
          .says = std::move(says),
          .run = [plant](bool planted) {
            Proven proven;
            proven.adapt({"llm:q_proj"}, {"projector"});
            if (planted) plant(proven);
            return tell("", [&] {
              const TrainabilityReport proof = check_trainable(
                  proven.model, proven.trainables, proven.optimizers(), {}, proven.probe);
              for (const std::string& line : trainability_table(proof)) print_line(line);
              return 0;
            });
          }};
}

Told overfit_run(const std::function<void(Recipe&)>& change, const TrialHooks& hooks,
                 int64_t steps) {
  const TinyRun run;
  make_learnable(run);
  Recipe recipe = run.recipe("out");
  if (change) change(recipe);
  return tell(run.dir().path(), [&] {
    return overfit(recipe, {.steps = steps, .out = {}, .print = print_line, .hooks = hooks})
                   .healthy()
               ? 0
               : 5;
  });
}

/// One healthy run is the reference for all of them.
PlantedBug in_one_batch(const std::string& name, const std::string& planted,
                        std::vector<std::string> says, int64_t steps,
                        const std::function<void(Recipe&)>& change, const TrialHooks& hooks = {}) {
  return {.name = name,
          .planted = planted,
          .command = "lft debug overfit",
          .code = 5,
          .says = std::move(says),
          .run = [change, hooks, steps](bool planted) {
            static const Told healthy = overfit_run({}, {}, 100);
            return planted ? overfit_run(change, hooks, steps) : healthy;
          }};
}

std::vector<PlantedBug> in_recipes() {
  return {
      in_recipe("TargetsThatMatchNothing", "lora.targets: [llm:q_project]", 2,
                {"no linear layer of llm matches q_project", "the closest in llm: q_proj"},
                [](const TinyRun&, Recipe& recipe) { recipe.lora.targets = {"llm:q_project"}; }),
      in_recipe("TargetsOfAnotherTower", "lora.targets: [vision:gate_proj], which only the LLM has",
                2,
                {"no linear layer of vision matches gate_proj", "it would match in llm (2 layers)"},
                [](const TinyRun&, Recipe& recipe) { recipe.lora.targets = {"vision:gate_proj"}; }),
      in_recipe("TargetsLeakIntoTheVisionTower",
                "lora.targets: [q_proj], which LLM and CLIP both have", 2,
                {"scope:pattern", "q_proj"},
                [](const TinyRun&, Recipe& recipe) { recipe.lora.targets = {"q_proj"}; }),
      in_recipe(
          "DeadModule",
          "adapters on the last CLIP layer, whose output vision_feature_layer: -2 does not use", 2,
          {"nothing is trainable", "vision_feature_layer -2 of 3 layers", "encoder.layers.2."},
          [](const TinyRun&, Recipe& recipe) { recipe.lora.targets = {"vision:*layers.2.*"}; },
          [](Recipe& recipe) {
            recipe.full.clear();
            recipe.lora.targets = {"vision:*layers.1.*"};
          }),
      in_recipe(
          "DeadAdapter",
          "o_proj of layer 1 is all zero, so that the adapter before it has no gradient", 2,
          {"gradient is exactly zero", "language_model.model.layers.1.self_attn.v_proj",
           "1 of 2 modules"},
          [](const TinyRun& run, Recipe&) {
            change_model(run, [](StoredTensors& t) {
              scale_stored(t, "language_model.model.layers.1.self_attn.o_proj.weight", 0);
            });
          },
          [](Recipe& recipe) {
            recipe.full.clear();
            recipe.lora.targets = {"llm:v_proj"};
          }),
      in_recipe("NothingTrainable", "lora.targets and full are empty", 2,
                {"nothing to train", "both are empty"},
                [](const TinyRun&, Recipe& recipe) {
                  recipe.lora.targets.clear();
                  recipe.full.clear();
                }),
      {.name = "LearningRateZero",
       .planted = "optim.lr: 0",
       .command = "lft train",
       .code = 2,
       .says = {"a learning rate of 0", "optim.lr", "would never move"},
       .run =
           [](bool planted) {
             const TinyRun run;
             Recipe recipe = run.recipe("out");
             recipe.train.max_steps = 2;
             recipe.optim.warmup_ratio = 0;
             if (planted) recipe.optim.lr = 0;
             return tell(run.dir().path(), [&] { return train::train(recipe); });
           }},
      {.name = "AdapterThatNoBatchReaches",
       .planted = "adapters in the projector, and the only image behind the last step",
       .command = "lft train",
       .code = 5,
       .says = {"no batch reached them", "multi_modal_projector.linear_1.lora_B.weight"},
       .run =
           [](bool planted) {
             const TinyRun run;
             const Recipe recipe = run.projector_recipe("out", /*without_images=*/planted);
             return tell(run.dir().path(), [&] { return train::train(recipe); });
           }},
  };
}

std::vector<PlantedBug> in_owners() {
  return {
      in_ownership("FrozenAdapter",
                   "requires_grad off on a lora_B, as an adapter made for inference has it",
                   {"is frozen", "language_model.model.layers.1.self_attn.q_proj.lora_B.weight"},
                   [](Proven& proven) {
                     proven.tensor("language_model.model.layers.1.self_attn.q_proj.lora_B.weight")
                         .set_requires_grad(false);
                   }),
      in_ownership(
          "OptimizerWithStaleTensors", "the model was loaded again behind the optimizer",
          {"no longer uses", "language_model.model.layers.0.self_attn.q_proj.lora_A.weight"},
          [](Proven& proven) {
            const std::vector<Trainable> held = proven.trainables;
            proven.build();
            proven.adapt({"llm:q_proj"}, {"projector"});
            proven.make_optimizer(held);
            proven.trainables = held;
          }),
      in_ownership("TwoOptimizersOfOneTensor", "a second optimizer over the last trainable",
                   {"two optimizer groups own", "group 2/base",
                    "language_model.model.layers.1.self_attn.q_proj.lora_B.weight"},
                   [](Proven& proven) {
                     const std::vector<Trainable> shared = {proven.trainables.back()};
                     proven.second = std::make_unique<Optimizer>(
                         shared, param_groups(shared, 1e-3, -1), make_adamw({}));
                   }),
      in_ownership(
          "TensorWithoutAnOwner", "the optimizer was made without the last trainable",
          {"no optimizer owns", "language_model.model.layers.1.self_attn.q_proj.lora_B.weight"},
          [](Proven& proven) {
            proven.make_optimizer({proven.trainables.begin(), proven.trainables.end() - 1});
          }),
      in_ownership("TrainablesInLowPrecision", "the whole model was cast to BF16, adapters too",
                   {"not an FP32 master"}, [](Proven& proven) { proven.model->to(at::kBFloat16); }),
      in_ownership("TensorTheLossDoesNotReach",
                   "the optimizer holds another tensor object over the same memory",
                   {"the loss does not depend on", "multi_modal_projector.linear_1.weight"},
                   [](Proven& proven) {
                     std::vector<Trainable> copies = proven.trainables;
                     copies[0].tensor = copies[0].tensor.detach().set_requires_grad(true);
                     proven.make_optimizer(copies);
                   }),
  };
}

Slot& slot_of(Optimizer& optimizer, const std::string& name) {
  for (Slot& slot : optimizer.slots()) {
    if (slot.param.name == name) return slot;
  }
  throw std::out_of_range(name);
}

std::vector<PlantedBug> in_batches() {
  const auto freeze = [](int64_t, Optimizer& optimizer) {
    slot_of(optimizer, kUp + ".lora_B.weight").param.tensor.mutable_grad().zero_();
  };
  const auto sum = [](int64_t, Optimizer& optimizer) {
    for (at::Tensor gradient : optimizer.gradients()) {
      if (gradient.defined()) gradient.mul_(57);
    }
  };
  const auto adapters = [](Recipe& recipe) { recipe.full.clear(); };
  return {
      in_one_batch("FrozenLayer", "an adapter whose gradient is zero in every step",
                   {"suspect    frozen layer", "1 of 16 trained modules are frozen",
                    kUp + ": lora_B had a gradient of exactly zero"},
                   20, {}, {.built = {}, .gradients_ready = freeze}),
      in_one_batch("LearningRateTooLow", "optim.lr: 1e-9",
                   {"suspect    learning rate too low", "try optim.lr=0.01"}, 60,
                   [](Recipe& recipe) {
                     recipe.full.clear();
                     recipe.optim.lr = 1e-9;
                   }),
      in_one_batch("WrongReduction", "gradients of a sum over 57 tokens instead of their mean",
                   {"suspect    loss reduction", ", 57 times the mean's"}, 20, adapters,
                   {.built = {}, .gradients_ready = sum}),
      {.name = "PrecisionThatBreaksTheRun",
       .planted = "up_proj of layer 0 2^20 times larger, FP16",
       .command = "lft debug bare",
       .code = 5,
       .says = {"found      precision", "FAILS    step 1: the loss is not finite"},
       .run =
           [](bool planted) {
             const TinyRun run;
             if (planted) {
               change_model(run, [](StoredTensors& t) { scale_mlp(t, 0, 0x1p20f); });
             }
             Recipe recipe = run.recipe("out");
             recipe.lora.dropout = 0;
             recipe.optim.schedule = "constant";
             recipe.optim.clip_grad_norm = 0;
             recipe.model.base_dtype = "fp32";
             recipe.precision.compute = "fp16";
             return tell(run.dir().path(), [&] {
               return bare(recipe, {.steps = 12, .print = print_line, .hooks = {}}).healthy() ? 0
                                                                                              : 5;
             });
           }},
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Recipes, Planted, ::testing::ValuesIn(in_recipes()), planted_name);
INSTANTIATE_TEST_SUITE_P(Owners, Planted, ::testing::ValuesIn(in_owners()), planted_name);
INSTANTIATE_TEST_SUITE_P(OneBatch, Planted, ::testing::ValuesIn(in_batches()), planted_name);

}  // namespace lft::test::planted_training_test
