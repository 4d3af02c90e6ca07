// Planted causes of torch's "No inf checks were recorded for this optimizer", and a step
// that computes wrong numbers. Named by the loss scaler used in every lft step, and by
// lft doctor.
#include "debug/planted.h"
#include "src/base/text.h"
#include "src/debug/doctor/doctor.h"
#include "src/debug/doctor/doctor_lines.h"
#include "train/scaler_toy.h"

namespace lft::test::planted_scaler_test {
using namespace lft::lora;
namespace {

/// Two adapters with one optimizer each, and one scaler.
struct Scaled : Scaler {
  void TestBody() override {}
  using Scaler::backward;
  using Scaler::loss;
  using Scaler::optimizer;
  using Scaler::other;
  using Scaler::others;
  using Scaler::parameters;
  using Scaler::scaler;
};

/// A whole step by hand; `wrong` replaces the right order.
PlantedBug in_step(const std::string& name, const std::string& planted,
                   std::vector<std::string> says, const std::function<void(Scaled&)>& wrong) {
  return {.name = name,
          .planted = planted,
          .command = "the loss scaler of every step",
          .code = 1,
          .says = std::move(says),
          .run = [wrong](bool planted) {
            Scaled step;
            return tell("", [&] {
              if (planted) {
                wrong(step);
              } else {
                step.backward(step.parameters);
              }
              step.scaler.unscale(*step.optimizer, step.loss, 0);
              step.scaler.step(*step.optimizer, 1);
              step.scaler.update();
              return 0;
            });
          }};
}

std::vector<PlantedBug> in_steps() {
  const std::string names = "2 parameters: q_proj.lora_A.weight, q_proj.lora_B.weight";
  return {
      in_step(
          "WrongOptimizerIsStepped", "step() on the optimizer that was not unscaled",
          {"step() on another optimizer than the one that was unscaled", "projector.lora_A.weight"},
          [](Scaled& step) {
            step.backward(step.parameters);
            step.scaler.unscale(*step.optimizer, step.loss, 0);
            step.scaler.step(*step.other, 1);
          }),
      in_step("EveryParameterIsFrozen", "requires_grad off on all that the optimizer holds",
              {"every parameter of the optimizer is frozen", names, "\"inference_mode\": true"},
              [](Scaled& step) {
                for (const Trainable& parameter : step.parameters)
                  parameter.tensor.set_requires_grad(false);
                step.backward(step.others);
              }),
      in_step("BackwardPassIsSkipped", "unscale() without a loss",
              {"the backward pass was not run: no loss was scaled", names}, [](Scaled&) {}),
      in_step("BackwardPassOnTheUnscaledLoss", "backward() on the loss instead of the scaled one",
              {"the gradients are not scaled", names},
              [](Scaled& step) { loss_of(step.parameters).backward(); }),
      in_step("ForwardPassUnderNoGrad", "the loss computed and scaled under NoGradGuard",
              {"the step runs under no-grad or inference mode"},
              [](Scaled& step) {
                const at::NoGradGuard no_grad;
                step.scaler.scale(loss_of(step.parameters)).backward();
              }),
      in_step("EmptyBatch", "no loss at all", {"the batch is empty: there is no loss"},
              [](Scaled& step) { step.scaler.scale(at::Tensor()).backward(); }),
      in_step("OptimizerRebuiltInTheStep", "a new optimizer between unscale() and step()",
              {"the optimizer was rebuilt between unscale() and step()"},
              [](Scaled& step) {
                step.backward(step.parameters);
                step.scaler.unscale(*step.optimizer, step.loss, 0);
                step.scaler.step(*optimizer_of(step.parameters), 1);
              }),
      in_step("OptimizerRebuiltBesideTheModel", "the optimizer holds copies of the parameters",
              {"the optimizer was rebuilt on tensors that the model does not use", names},
              [](Scaled& step) {
                step.backward(step.parameters);
                step.scaler.unscale(*step.optimizer, step.loss, 0);
                step.scaler.step(*step.optimizer, 1);
                step.scaler.update();
                step.optimizer->drop_gradients();
                std::vector<Trainable> copies = step.parameters;
                for (Trainable& copy : copies)
                  copy.tensor = copy.tensor.detach().clone().requires_grad_();
                const auto rebuilt = optimizer_of(copies);
                step.backward(step.parameters);
                step.scaler.unscale(*rebuilt, step.loss, 0);
              }),
      {.name = "MachineThatComputesWrongNumbers",
       .planted = "the sign of a gradient in the doctor's training step",
       .command = "lft doctor",
       .code = 1,
       .says = {"computes wrong numbers: the gradient of first.lora_A.weight"},
       .run =
           [](bool planted) {
             const auto turn = [&](int64_t step, Optimizer& optimizer) {
               if (planted && step == 2) optimizer.slots()[0].param.tensor.mutable_grad().neg_();
             };
             return tell("", [&] {
               const DoctorReport report = examine({.gradients_ready = turn});
               std::puts(join(doctor_lines(report), "\n").c_str());
               return report.problems.empty() ? 0 : static_cast<int>(report.problems.front().kind);
             });
           }},
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Step, Planted, ::testing::ValuesIn(in_steps()), planted_name);

}  // namespace lft::test::planted_scaler_test
