// The playbook's exercise: three layers, the second of which takes a log after step 50. The hooks
// name the layer and the op, the step is the one at which training broke, and autograd's own
// anomaly mode agrees where it reports anything.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <cmath>

#include "debug/exercise.h"

namespace lft::test::exercise_test {
namespace {

std::string names(const std::vector<Hint>& hints) {
  std::string text;
  for (const Hint& hint : hints) text += hint.name + ": " + hint.evidence + "\n";
  return text;
}

TEST(Exercise, TheHookNamesLayer2AndTheLogAndTheStepIs51) {
  Exercise exercise([](const at::Tensor& x) { return at::log(x - x.detach().min()); });
  EXPECT_EQ(exercise.train_until_broken(0.01), 51);
  const PassReport report = exercise.hunt();
  ASSERT_TRUE(report.forward);
  EXPECT_EQ(report.forward->module, "layer2");
  EXPECT_EQ(report.forward->op, "aten::log");
  EXPECT_EQ(report.forward->value.inf, 1);  // only the smallest element is log(0)
  EXPECT_EQ(report.forward->value.nan, 0);
  EXPECT_EQ(report.forward->value.count(), 32 * 16);
  ASSERT_EQ(report.forward->inputs.size(), 1u);
  EXPECT_EQ(report.forward->inputs[0].facts.min, 0);
  EXPECT_NE(names(report.forward->hints).find("log of zero: 1 of 512 inputs"), std::string::npos)
      << names(report.forward->hints);
  exercise.step = 50;
  EXPECT_TRUE(exercise.hunt().finite());
}

TEST(Exercise, AGuardTooSmallForFp32BreaksInTheLogsBackwardPass) {
  Exercise exercise([](const at::Tensor& x) {
    return at::log(x - x.detach().min() + 1e-42);
  });  // 1 / 1e-42 exceeds FP32
  EXPECT_EQ(exercise.train_until_broken(0.01), 51);
  const PassReport report = exercise.hunt();
  EXPECT_FALSE(report.forward);
  EXPECT_TRUE(std::isfinite(report.loss));
  ASSERT_TRUE(report.backward);
  EXPECT_EQ(report.backward->module, "layer2");
  EXPECT_EQ(report.backward->op, "LogBackward0");
  EXPECT_EQ(report.backward->inner, "aten::div");
  EXPECT_EQ(report.backward->value.inf, 1);
  ASSERT_FALSE(report.gradients.empty());
  EXPECT_EQ(report.gradients.front().name, "layer1.weight");
}

TEST(Exercise, TheLineOfTheExerciseBlowsTheGradientUpInTheLog) {
  Exercise exercise([](const at::Tensor& x) { return at::log(x - x.detach().min() + 1e-9); });
  const int64_t broken = exercise.train_until_broken(0.01);
  EXPECT_GT(broken, 51);  // gradients of 1e9 first, infinite ones some steps later
  const PassReport report = exercise.hunt();
  EXPECT_FALSE(report.finite());
  exercise = Exercise([](const at::Tensor& x) { return at::log(x - x.detach().min() + 1e-9); });
  exercise.layers[1]->bend = [](const at::Tensor& x) {
    return at::log(x - x.detach().min() + 1e-9);
  };
  const PassReport first = exercise.hunt();
  EXPECT_TRUE(first.finite());
  const auto grows = [](const GradientRow& a, const GradientRow& b) {
    return a.returned * b.received < b.returned * a.received;
  };
  const GradientRow worst = *std::max_element(first.trace.begin(), first.trace.end(), grows);
  EXPECT_EQ(worst.module, "layer2");
  EXPECT_EQ(worst.node, "LogBackward0");
}

TEST(Exercise, AnomalyModeNamesTheSameNode) {
  const auto trap = [](const at::Tensor& x) {
    const at::Tensor above = x - x.detach().min();
    return at::where(above > 0, at::log(above),
                     at::zeros_like(x));  // the gradient of the branch not taken is 0 / 0
  };
  Exercise exercise(trap);
  EXPECT_EQ(exercise.train_until_broken(0.01), 51);
  std::string torch_says;
  {
    const torch::autograd::DetectAnomalyGuard anomaly;
    try {
      exercise.loss().backward();
    } catch (const std::exception& error) {
      torch_says = error.what();
    }
  }
  EXPECT_NE(torch_says.find("'LogBackward0' returned nan"), std::string::npos) << torch_says;
  const PassReport report = exercise.hunt();
  EXPECT_FALSE(report.forward);  // minus infinity inside the layer does not reach its output
  ASSERT_TRUE(report.backward);
  EXPECT_EQ(report.backward->module, "layer2");
  EXPECT_EQ(report.backward->op, "LogBackward0");
  EXPECT_NE(names(report.backward->hints).find("division by zero"), std::string::npos);
  for (const at::Tensor& parameter : exercise.parameters()) parameter.mutable_grad().reset();
}

TEST(Exercise, AGradientThatIsDroppedOnTheWayIsHarmless) {
  Exercise exercise([](const at::Tensor& x) {
    const at::Tensor positive = at::relu(x);  // relu's backward drops the log's result where x < 0
    return at::where(positive > 0, at::log(positive), at::zeros_like(x));
  });
  EXPECT_EQ(exercise.train_until_broken(0.01), 0);
  const PassReport report = exercise.hunt();
  EXPECT_TRUE(report.finite());
  ASSERT_TRUE(report.backward);
  EXPECT_EQ(report.backward->op, "LogBackward0");
}

TEST(Exercise, EachOpIsNamedWithItsCause) {
  struct Case {
    const char* op;
    const char* hint;
    Bend bend;
  };
  const Case cases[] = {
      {"aten::log", "log of a negative number", [](const at::Tensor& x) { return at::log(x); }},
      {"aten::sqrt", "square root of a negative number",
       [](const at::Tensor& x) { return at::sqrt(x); }},
      {"aten::div", "division by zero: 512 of 512 divisors",
       [](const at::Tensor& x) { return x / (x - x); }},
      {"aten::reciprocal", "division by zero",
       [](const at::Tensor& x) { return at::reciprocal(at::relu(x)); }},
      {"aten::exp", "overflow of exp",
       [](const at::Tensor& x) { return at::softmax(x, -1) + at::exp(x * 0 + 89) * 0; }},
      {"aten::mul", "overflow of fp32",
       [](const at::Tensor& x) { return x.sign() * 1e30 * (x.sign() * 1e30); }},
      {"aten::to", "overflow of fp16",
       [](const at::Tensor& x) { return (x * 1e6).to(at::kHalf).to(at::kFloat); }},
  };
  for (const Case& each : cases) {
    Exercise exercise(each.bend);
    exercise.step = 51;
    const PassReport report = exercise.hunt();
    ASSERT_TRUE(report.forward) << each.op;
    EXPECT_EQ(report.forward->module, "layer2") << each.op;
    EXPECT_EQ(report.forward->op, each.op);
    EXPECT_NE(names(report.forward->hints).find(each.hint), std::string::npos)
        << each.op << "\n"
        << names(report.forward->hints);
    EXPECT_EQ(report.forward->hints.size(), 1u) << names(report.forward->hints);
    for (const NamedFacts& input : report.forward->inputs)
      EXPECT_TRUE(input.facts.finite()) << each.op;
    EXPECT_TRUE(report.forward->from.empty());
  }
}

TEST(Exercise, AMaskOfInfinitiesIsNoFinding) {
  Exercise exercise([](const at::Tensor& x) {
    const at::Tensor mask = at::ones({16, 16}, at::kBool).triu(1);
    at::Tensor scores = at::matmul(x, x.t());  // [32, 32]
    scores = scores.slice(0, 0, 16).slice(1, 0, 16).masked_fill(mask, -INFINITY);
    return at::matmul(at::softmax(scores, -1), x.slice(0, 0, 16)).repeat({2, 1});
  });
  exercise.step = 51;
  const PassReport report = exercise.hunt();
  EXPECT_TRUE(report.finite());
  EXPECT_FALSE(report.forward);
}

TEST(Exercise, AnOpBetweenTwoModulesIsBlamedOnTheModuleAround) {
  Exercise exercise([](const at::Tensor& x) { return x; });
  const auto loss = [&] {
    const at::Tensor h = call("layer1", exercise.layers[0], exercise.x);
    return call("layer3", exercise.layers[2], call("layer2", exercise.layers[1], at::sqrt(h)))
        .sum();
  };
  const PassReport report = watch_pass({.loss = loss, .parameters = {}, .known = {}});
  ASSERT_TRUE(report.forward);
  EXPECT_EQ(report.forward->module, "");
  EXPECT_EQ(report.forward->op, "aten::sqrt");
}

}  // namespace
}  // namespace lft::test::exercise_test
