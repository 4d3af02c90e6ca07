// Two traces of one recipe agree bit by bit; a planted nondeterminism of every kind is found at its
// step, module and tensor.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/debug/repeat/determinism.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace lft::determinism_test {
using namespace lft::data;
using namespace lft::debug;
using namespace lft::recipe;
using namespace lft::train;
namespace {

/// Two micro-batches per step, dropout, epochs of 2 steps (8 + 2 rows).
Recipe traced(const test::TinyRun& run) {
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  recipe.lora.dropout = 0.25;
  recipe.train.grad_accum = 2;
  return recipe;
}

/// The runs that the command would start as separate processes, with `plant` in the second one.
std::string found_in(const Recipe& recipe, const TraceOptions& plant, int planted_run = 1) {
  const auto trace = [&](const Recipe& of_run, int run) {
    return trace_steps(of_run, run == planted_run ? plant : TraceOptions{.steps = plant.steps});
  };
  ::testing::internal::CaptureStdout();
  const std::string text = test::thrown_text(
      ErrorKind::kNumeric,
      [&] { check_determinism(recipe, {.steps = plant.steps, .trace = trace}); }, __FILE__,
      __LINE__);
  ::testing::internal::GetCapturedStdout();
  return text;
}

#define EXPECT_HAS(text, piece) \
  EXPECT_NE((text).find(piece), std::string::npos) << "no \"" << (piece) << "\" in:\n" << (text)

/// The next float up: the smallest possible change.
void nudge(const at::Tensor& tensor) {
  float* first = tensor.variable_data().data_ptr<float>();
  *first = std::nextafter(*first, INFINITY);
}

TEST(TensorHash, SeesEveryBitPlaceShapeAndDtype) {
  const at::Tensor zeros = at::zeros({41}, at::kFloat);  // 164 bytes: lanes, words and a rest
  const uint64_t hash = tensor_hash(zeros);
  EXPECT_EQ(hash, tensor_hash(at::zeros({41}, at::kFloat)));
  for (int byte = 0; byte < 164; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      at::Tensor changed = zeros.clone();
      static_cast<uint8_t*>(changed.data_ptr())[byte] ^= static_cast<uint8_t>(1 << bit);
      EXPECT_NE(tensor_hash(changed), hash) << byte << " " << bit;
    }
  }
  EXPECT_NE(tensor_hash(zeros.view({1, 41})), hash);
  EXPECT_NE(tensor_hash(at::zeros({41}, at::kInt)), hash);
  EXPECT_NE(tensor_hash(at::zeros({42}, at::kFloat)), hash);
  EXPECT_NE(tensor_hash(-zeros), hash);
  const at::Tensor counted = at::arange(12).view({3, 4});
  EXPECT_EQ(tensor_hash(counted.t()), tensor_hash(counted.t().contiguous()));
  EXPECT_NE(tensor_hash(counted), tensor_hash(counted.t().contiguous().view({3, 4})));
}

TEST(Determinism, AHealthyRunIsEqualWithAnyNumberOfWorkers) {
  const test::TinyRun run(10);
  const auto trace = [](const Recipe& recipe, int) { return trace_steps(recipe, {.steps = 3}); };
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(check_determinism(traced(run), {.steps = 3, .trace = trace}), 0);
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_HAS(out, "in 3 steps");
  EXPECT_HAS(out, "with 1 and with 4 data workers");
}

TEST(Determinism, ATraceHoldsEveryPartOfAStepInOrder) {
  const test::TinyRun run(10);
  const Trace trace = trace_steps(traced(run), {.steps = 1});
  std::vector<std::string> phases;
  for (const TraceRecord& record : trace.records) {
    std::string phase = (record.step == 0 ? "first " : "") + record.phase;
    if (phase == "input") phase = "output";  // phases alternate
    if (phases.empty() || phases.back() != phase) phases.push_back(phase);
  }
  EXPECT_EQ(phases, (std::vector<std::string>{"first weight", "batch", "output", "loss", "gradient",
                                              "weight", "moment"}));
  int64_t outputs = 0;
  for (const TraceRecord& record : trace.records) {
    outputs +=
        record.phase == "output" && record.module == "language_model.model.layers.1.mlp.down_proj"
            ? 1
            : 0;
  }
  EXPECT_EQ(outputs, 2);  // one per micro-batch
}

TEST(Determinism, ATraceReadsBackAndACutOneIsRefused) {
  const test::TinyRun run(10);
  const Trace trace = trace_steps(traced(run), {.steps = 1});
  const std::string text = trace_text(trace);
  EXPECT_FALSE(first_difference(trace, parse_trace(text, "t")).has_value());
  EXPECT_EQ(trace_text(parse_trace(text, "t")), text);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "the trace is cut",
                   parse_trace(text.substr(0, text.size() - 3), "t"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "t:1", parse_trace("[1,2]\n\"\"\n", "t"));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "t:1", parse_trace("nonsense\n", "t"));
}

TEST(Determinism, NoiseInAModuleIsFoundThere) {
  const test::TinyRun run(10);
  const std::string module = "language_model.model.layers.1.self_attn.o_proj";
  const std::string text = found_in(
      traced(run),
      {.steps = 4, .output_ready = [&](int64_t step, const std::string& path, const auto& outputs) {
         if (step == 2 && path == module) nudge(outputs.front());
       }});
  EXPECT_HAS(text, "step 2, micro-batch 0: output 0 of " + module + ", float [");
  EXPECT_HAS(text, "own forward pass");
  EXPECT_HAS(text, "two runs of one recipe part");
}

TEST(Determinism, NoiseInAGradientIsFoundThere) {
  const test::TinyRun run(10);
  std::string name;
  const std::string text = found_in(
      traced(run), {.steps = 3, .gradients_ready = [&](int64_t step, Optimizer& optimizer) {
                      const Slot& slot = optimizer.slots()[3];
                      name = slot.param.name;
                      if (step == 3) nudge(slot.param.tensor.grad());
                    }});
  ASSERT_FALSE(name.empty());
  EXPECT_HAS(text, "step 3: gradient " + name + ", float [");
  EXPECT_HAS(text, "the backward pass");
}

TEST(Determinism, AnOptimizerThatDiffersIsFound) {
  const test::TinyRun run(10);
  std::string name;
  const std::string text = found_in(
      traced(run), {.steps = 2, .gradients_ready = [&](int64_t step, Optimizer& optimizer) {
                      Slot& slot = optimizer.slots().back();
                      name = slot.param.name;
                      if (step == 2) slot.moment("exp_avg").add_(1);
                    }});
  EXPECT_HAS(text, "step 2: weight " + name + ", float [");
  EXPECT_HAS(text, "all gradients were the same: the optimizer");
}

TEST(Determinism, SamplesInAnotherOrderAreFoundBeforeTheirConsequences) {
  const test::TinyRun run(10);
  const TraceOptions swapped{.steps = 3, .samples_ready = [](int64_t step, StepSamples& samples) {
                               if (step == 2) std::swap(samples.micro[0][0], samples.micro[0][1]);
                             }};
  EXPECT_HAS(found_in(traced(run), swapped), "step 2, micro-batch 0: batch id of sample row");
}

TEST(Determinism, APixelThatDiffersIsFound) {
  const test::TinyRun run(10);
  const TraceOptions plant{.steps = 1, .samples_ready = [](int64_t, StepSamples& samples) {
                             samples.micro[1][0].images[0].chw[7] ^= 1;
                           }};
  const std::string text = found_in(traced(run), plant);
  EXPECT_HAS(text, "step 1, micro-batch 1: batch image 0 of sample row");
}

TEST(Determinism, OtherWeightsToStartFromAreFoundBeforeStepOne) {
  const test::TinyRun run(10);
  const auto trace = [](Recipe recipe, int number) {
    if (number == 1) recipe.train.seed = 43;
    return trace_steps(recipe, {.steps = 1});
  };
  ::testing::internal::CaptureStdout();
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "before step 1: weight language_model",
                   check_determinism(traced(run), {.steps = 1, .trace = trace}));
  ::testing::internal::GetCapturedStdout();
}

TEST(Determinism, ADifferenceThatComesWithTheWorkersSaysSo) {
  const test::TinyRun run(10);
  const TraceOptions swapped{.steps = 2, .samples_ready = [](int64_t step, StepSamples& samples) {
                               if (step == 1) std::swap(samples.micro[1][0], samples.micro[1][1]);
                             }};
  const std::string text = found_in(traced(run), swapped, /*planted_run=*/2);
  EXPECT_HAS(text, "runs with 1 and with 4 data workers part");
  EXPECT_HAS(text, "step 1, micro-batch 1: batch id");
}

TEST(Determinism, ARunThatEndsEarlierSaysWhy) {
  const test::TinyRun run(10);
  const TraceOptions plant{
      .steps = 3, .output_ready = [](int64_t step, const std::string& path, const auto& outputs) {
        if (step == 2 && path == "language_model") outputs.front().variable_data().fill_(NAN);
      }};
  EXPECT_HAS(found_in(traced(run), plant),
             "step 2, micro-batch 0: output 0 of language_model, float [");
  Trace a, b;
  a.records = {{.step = 1, .phase = "loss", .tensor = "loss", .hash = "1"},
               {.step = 2, .phase = "loss", .tensor = "loss", .hash = "2"}};
  b.records = {a.records[0]};
  const auto difference = first_difference(a, b);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->step, 2);
  EXPECT_TRUE(difference->a.has_value());
  EXPECT_FALSE(difference->b.has_value());
}

}  // namespace
}  // namespace lft::determinism_test
