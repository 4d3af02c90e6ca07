// Planted faults of adapters and hooks in graphs, shapes and memory, and diverging
// norms. Named by the trainability check, by lft train and by lft debug memory.
#include <cmath>
#include <limits>

#include "debug/planted.h"
#include "models/base/call.h"
#include "src/debug/memory/memory.h"
#include "src/train/run/trainer.h"
#include "support/counting_allocator.h"
#include "train/offender.h"
#include "train/proof_fixture.h"

namespace lft::test::planted_graph_test {
using namespace lft::layers;
namespace {

const std::string kLayer = "language_model.model.layers.1";

/// A model that trains v_proj and projector, whose layers a test may modify.
struct Model : ProofFixture {
  Model() { adapt({"llm:v_proj"}, {"projector"}); }
  void TestBody() override {}
  using ProofFixture::llm_layer;
  using ProofFixture::model;
  using ProofFixture::optimizer;
  using ProofFixture::probe;
  using ProofFixture::tensor;
  using ProofFixture::trainables;
  void meddle(const std::string& name, Offender::Body body) {
    Linear layer = llm_layer(name);
    layer->set_adapter(std::make_shared<Offender>(*layer, std::move(body), /*trains=*/false));
  }
};

PlantedBug in_graph(const std::string& name, const std::string& planted,
                    std::vector<std::string> says, const std::function<void(Model&)>& plant) {
  return {.name = name,
          .planted = planted,
          .command = "the proof of lft check and lft train",
          .code = 1,
          .says = std::move(says),
          .run = [plant](bool planted) {
            Model model;
            if (planted) plant(model);
            return tell("", [&] {
              TrainabilityReport proof = check_trainable(model.model, model.trainables,
                                                         {model.optimizer.get()}, {}, model.probe);
              prove_second_step(model.model, model.trainables, model.probe, proof);
              return 0;
            });
          }};
}

std::vector<PlantedBug> in_graphs() {
  return {
      in_graph("TrainableChangedInPlace",
               "an adapter of q_proj writes to the lora_A of v_proj in the forward pass",
               {"a trainable tensor was changed in place while its gradient is recorded",
                "module " + kLayer + ".self_attn.q_proj, forward pass",
                "aten::mul_ on " + kLayer + ".self_attn.v_proj"},
               [](Model& model) {
                 const at::Tensor a = model.tensor(kLayer + ".self_attn.v_proj.lora_A.weight");
                 model.meddle("layers.1.self_attn.q_proj",
                              [a](Offender&, const at::Tensor&, const at::Tensor& y) {
                                at::Tensor(a).mul_(0.5);
                                return y;
                              });
               }),
      in_graph(
          "SavedTensorChangedInPlace",
          "an adapter of q_proj halves what exp has saved for the backward pass",
          {"a tensor was changed in place after an op had saved it for the backward pass",
           "module " + kLayer +
               ".self_attn.q_proj, backward pass, ExpBackward0, changed in place by aten::mul_"},
          [](Model& model) {
            model.meddle("layers.1.self_attn.q_proj",
                         [](Offender&, const at::Tensor&, const at::Tensor& y) {
                           at::Tensor gate = at::exp(y);
                           gate.mul_(0.5);
                           return y * gate;
                         });
          }),
      in_graph("SecondBackwardPass",
               "an adapter of q_proj keeps a part of the graph for the next pass",
               {"a graph was to be differentiated a second time, after it was freed",
                "module " + kLayer + ".self_attn.q_proj, backward pass",
                "detach() what a module, hook or cache keeps"},
               [](Model& model) {
                 const auto kept = std::make_shared<at::Tensor>();
                 model.meddle("layers.1.self_attn.q_proj",
                              [kept](Offender&, const at::Tensor&, const at::Tensor& y) {
                                const at::Tensor before = *kept;
                                *kept = (y * y).mean();
                                return before.defined() ? y + before : y;
                              });
               }),
      in_graph("ShapeSlipOfAWeight", "up_proj of layer 1 has 47 rows instead of 48",
               {"up [", kLayer + ".mlp.down_proj", "m=47]", "m=48]"},
               [](Model& model) {
                 model.llm_layer("layers.1.mlp.up_proj")->weight.set_data(at::ones({47, 32}));
               }),
      in_graph("ShapeSlipOfAnAdapter",
               "an adapter of o_proj averages over the positions: LibTorch would broadcast it "
               "without a word",
               {"the adapter's output", "module " + kLayer + ".self_attn.o_proj"},
               [](Model& model) {
                 model.meddle("layers.1.self_attn.o_proj",
                              [](Offender&, const at::Tensor&, const at::Tensor& y) {
                                return y.mean(-1, /*keepdim=*/true);
                              });
               }),
  };
}

/// Keeps a layer's output, like a hook that logs activations.
class Keeper : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module&,
             const std::vector<at::Tensor>& outputs) override {
    if (path == "language_model.model.layers.0.mlp" && at::GradMode::is_enabled())
      kept_.push_back(outputs[0].detach().clone());
  }

 private:
  std::vector<at::Tensor> kept_;
};

Told train_watched(int64_t steps, const TrainOptions& options = {},
                   const std::function<void(Recipe&)>& change = {}) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.train.max_steps = steps;
  recipe.checkpoint.every_steps = 1000;
  if (change) change(recipe);
  return tell(run.dir().path(), [&] { return train::train(recipe, options); });
}

/// Twelve rows in order, the tenth of them long if `planted`; memory only for ordinary
/// batches.
Told train_in_little_memory(bool planted) {
  const TinyRun run;
  if (planted) {
    Json rows = Json::parse(slurp(run.dir().file("rows.json")));
    rows[9]["conversations"][1]["value"] = std::string(400, 'a');
    run.dir().write("rows.json", rows.dump());
  }
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.data.shuffle = false;
  recipe.train.max_steps = 4;
  recipe.train.worst_first = true;
  const CountingAllocator counting;
  const int64_t before = CountingAllocator::live();
  CountingAllocator::reset_peak();
  train_watched(4);
  CountingAllocator::limit(before + (CountingAllocator::peak() - before) * 3 / 2);
  const Told told = tell(run.dir().path(), [&] { return train::train(recipe); });
  CountingAllocator::limit(std::numeric_limits<int64_t>::max());
  return told;
}

std::vector<PlantedBug> in_memory() {
  return {
      {.name = "LeakingHook",
       .planted = "a hook keeps a copy of a gradient of every step",
       .command = "lft train",
       .code = 0,
       .says = {"grew in each of the last", "of aten::clone outside the model"},
       .run =
           [](bool planted) {
             std::vector<at::Tensor> kept;
             const auto leak = [&](int64_t, Optimizer& optimizer) {
               if (planted) kept.push_back(optimizer.slots()[0].param.tensor.grad().clone());
             };
             return train_watched(14, {.gradients_ready = leak});
           }},
      {.name = "LeakingModule",
       .planted = "a hook keeps the output of an MLP in every forward pass",
       .command = "lft train",
       .code = 0,
       .says = {"grew in each of the last",
                "of aten::clone in language_model.model.layers.0.mlp (forward)"},
       .run =
           [](bool planted) {
             Keeper keeper;
             CallObserver nothing;
             const ObserveCalls observe(planted ? static_cast<CallObserver&>(keeper) : nothing);
             return train_watched(20);
           }},
      {.name = "LeakWithinFourSteps",
       .planted = "a hook keeps a copy of a gradient of every step",
       .command = "lft debug memory",
       .code = 5,
       .says = {"leak       every step leaves behind: 3 x float [",
                "of aten::clone outside the model"},
       .run =
           [](bool planted) {
             const TinyRun run;
             std::vector<at::Tensor> kept;
             const auto leak = [&](int64_t, Optimizer& optimizer) {
               if (planted) kept.push_back(optimizer.slots()[0].param.tensor.grad().clone());
             };
             const auto print = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
             return tell(run.dir().path(), [&] {
               const MemoryReport report = debug_memory(
                   run.recipe("out"), {.steps = 4,
                                       .out = run.dir().file("memory.html"),
                                       .print = print,
                                       .hooks = {.built = {}, .gradients_ready = leak}});
               return report.picture.leaks.empty() ? 0 : 5;
             });
           }},
      {.name = "OutOfMemoryOnTheWorstBatch",
       .planted = "a row of 400 tokens in step 3, memory for ordinary ones",
       .command = "lft train",
       .code = 6,
       .says = {"out of memory on cpu: ",
                "the rehearsal of the run's largest micro-batch, forward pass of language_model."},
       .run = train_in_little_memory},
  };
}

PlantedBug in_norms(const std::string& name, const std::string& planted,
                    std::vector<std::string> says,
                    const std::function<void(int64_t, Optimizer&)>& hook) {
  return {.name = name,
          .planted = planted,
          .command = "lft train",
          .code = 0,
          .says = std::move(says),
          .run = [hook](bool planted) {
            static const Told healthy = train_watched(80);
            return planted ? train_watched(80, {.gradients_ready = hook}) : healthy;
          }};
}

std::vector<PlantedBug> in_trends() {
  return {
      in_norms("GradientThatBlowsUp",
               "the gradients of layer 1 grow by a quarter a step from step 10 on",
               {"warning: step ", "rises", kLayer},
               [](int64_t step, Optimizer& optimizer) {
                 for (Slot& slot : optimizer.slots()) {
                   if (slot.param.name.find("layers.1.") == std::string::npos ||
                       !slot.param.tensor.grad().defined())
                     continue;
                   slot.param.tensor.mutable_grad().mul_(
                       std::pow(1.25, std::max<int64_t>(step - 10, 0)));
                 }
               }),
      in_norms("ModuleThatStopsLearning", "the gradients of an adapter are zero from step 20 on",
               {"warning: step ", "language_model.model.layers.0.mlp.up_proj"},
               [](int64_t step, Optimizer& optimizer) {
                 for (Slot& slot : optimizer.slots()) {
                   if (step > 20 &&
                       slot.param.name.find("layers.0.mlp.up_proj") != std::string::npos)
                     slot.param.tensor.mutable_grad().zero_();
                 }
               }),
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Graphs, Planted, ::testing::ValuesIn(in_graphs()), planted_name);
INSTANTIATE_TEST_SUITE_P(Memory, Planted, ::testing::ValuesIn(in_memory()), planted_name);
INSTANTIATE_TEST_SUITE_P(Trends, Planted, ::testing::ValuesIn(in_trends()), planted_name);

}  // namespace lft::test::planted_graph_test
