// train.worst_first: the largest micro-batch runs before the first step without side effects; a
// batch that does not fit is reported at once.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "src/train/run/rehearsal.h"
#include "src/train/run/trainer.h"
#include "support/counting_allocator.h"
#include "support/expect_error.h"
#include "train/pass_sizes.h"
#include "train/run_files.h"

namespace lft::rehearsal_test {
using namespace lft::data;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::CountingAllocator;

/// Twelve rows in file order, the tenth of them long: step 3 of batches of 4 is the largest.
class RehearsalTest : public ::testing::Test {
 protected:
  RehearsalTest() {
    Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
    rows[9]["conversations"][1]["value"] = std::string(400, 'a');
    run_.dir().write("rows.json", rows.dump());
  }
  Recipe recipe(const std::string& out, bool worst_first = true) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.data.shuffle = false;
    recipe.lora.dropout = 0.1;
    recipe.train.worst_first = worst_first;
    recipe.train.max_steps = 4;
    return recipe;
  }
  static std::string printed(const Recipe& recipe, const TrainOptions& options = {}) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(train::train(recipe, options), 0);
    return ::testing::internal::GetCapturedStdout();
  }

  const test::TinyRun run_;
};

TEST_F(RehearsalTest, SaysWhichMicroBatchAndHowMuch) {
  const std::string out = printed(recipe("a"));
  EXPECT_NE(
      out.find("memory test: ran the largest micro-batch, of step 3 (row8, row9, row10, row11): 4 "
               "rows of up to "),
      std::string::npos)
      << out;
  EXPECT_NE(out.find(" tokens, 4 images; tensors take "), std::string::npos) << out;
  EXPECT_EQ(printed(recipe("b", false)).find("memory test"), std::string::npos);
}

TEST_F(RehearsalTest, ChangesNoBit) {
  for (const int64_t accumulated : {1, 2}) {
    for (const char* compute : {"fp32", "bf16", "fp16"}) {
      const std::string name = compute + std::to_string(accumulated);
      Recipe with = recipe(name + "with"), without = recipe(name + "without", false);
      for (Recipe* each : {&with, &without}) {
        each->precision.compute = compute;
        each->train.batch_size = 4 / accumulated;
        each->train.grad_accum = accumulated;
        each->train.activation_checkpointing = accumulated == 1 ? "none" : "block";
      }
      EXPECT_NE(printed(with).find("memory test: ran the largest"), std::string::npos);
      printed(without);
      EXPECT_TRUE(test::run_bytes(with.output_dir, 4) == test::run_bytes(without.output_dir, 4))
          << name;
    }
  }
}

TEST_F(RehearsalTest, TouchesNothing) {
  lft::train::Run run = make_run(open_inputs(recipe("untouched")));
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor random = generator.get_state();
  std::vector<at::Tensor> before;
  for (const Slot& slot : run.optimizer.slots())
    before.push_back(slot.param.tensor.detach().clone());
  MemoryWatch watch(at::kCPU);
  const Rehearsal rehearsal = rehearse_worst(run, run_step_options(run), watch, /*proved=*/true);
  EXPECT_TRUE(rehearsal.ran);
  EXPECT_GT(rehearsal.peak, 0);
  EXPECT_TRUE(at::equal(random, generator.get_state()));
  EXPECT_EQ(run.state.step, 0);
  for (size_t i = 0; i < before.size(); ++i) {
    const Slot& slot = run.optimizer.slots()[i];
    EXPECT_TRUE(at::equal(before[i], slot.param.tensor)) << slot.param.name;
    EXPECT_FALSE(slot.param.tensor.grad().defined()) << slot.param.name;
    EXPECT_EQ(slot.steps, 0);
  }
}

TEST_F(RehearsalTest, ANonFiniteOneIsTheStepsBusiness) {
  lft::train::Run run = make_run(open_inputs(recipe("nan")));
  const at::NoGradGuard no_grad;
  run.optimizer.slots()[0].param.tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  const at::AutoGradMode with_graph(true);
  MemoryWatch watch(at::kCPU);
  EXPECT_TRUE(rehearse_worst(run, run_step_options(run), watch, /*proved=*/true).ran);
}

TEST_F(RehearsalTest, IsSkippedWhereTheProofWasAsLarge) {
  Recipe whole = recipe("whole");
  whole.train.batch_size = 12;  // every step is the probe's batch
  EXPECT_NE(printed(whole).find("memory test: skipped"), std::string::npos);
  lft::train::Run run = make_run(open_inputs([&] {
    Recipe again = whole;
    again.output_dir += "-again";
    return again;
  }()));
  MemoryWatch watch(at::kCPU);
  EXPECT_FALSE(rehearse_worst(run, run_step_options(run), watch, /*proved=*/true).ran);
  EXPECT_TRUE(rehearse_worst(run, run_step_options(run), watch, /*proved=*/false)
                  .ran);  // a resumed run has proved nothing
}

/// The probe is three rows, one of them long by its answer; padded to it they would be as large as
/// the micro-batch after them, whose first row is longer by its question.
TEST_F(RehearsalTest, APackedRunIsRehearsedUnlessThePackedProofWasAsLarge) {
  Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
  rows[0]["conversations"][1]["value"] = std::string(150, 'a');
  rows[3]["conversations"][0]["value"] = "<image>\n" + std::string(360, 'q');
  rows.erase(rows.begin() + 6, rows.end());
  run_.dir().write("rows.json", rows.dump());
  Recipe packed = recipe("packed");
  packed.data.max_tokens = 480;
  packed.train.batch_size = 6;
  packed.train.max_tokens_per_step = 520;
  lft::train::Run run = make_run(open_inputs(packed));
  MemoryWatch watch(at::kCPU);
  test::PassSizes sizes;
  const ObserveCalls observe(sizes);
  const Rehearsal rehearsal = rehearse_worst(run, run_step_options(run), watch, /*proved=*/true);
  ASSERT_TRUE(rehearsal.ran);
  EXPECT_EQ(static_cast<int64_t>(rehearsal.tokens), sizes.largest);
  size_t probe = 0;
  for (const Sample& sample : run.probe.samples) probe += sample.input_ids.size();
  EXPECT_LT(probe, rehearsal.tokens);
  EXPECT_EQ(run.probe.samples.size(), 3u);
  EXPECT_EQ(rehearsal.rows, 3u);
  EXPECT_NE(describe_rehearsal(rehearsal).find(" rows packed, " + std::to_string(rehearsal.tokens) +
                                               " tokens"),
            std::string::npos);
}

TEST_F(RehearsalTest, LeavesBadSamplesOut) {
  Json rows = Json::parse(test::slurp(run_.dir().file("rows.json")));
  rows[9]["image"] = "missing.bmp";
  run_.dir().write("rows.json", rows.dump());
  Recipe skipping = recipe("bad");
  skipping.data.on_bad_sample = "skip";
  const std::string out = printed(skipping);
  EXPECT_EQ(out.find("row9, "), std::string::npos) << out;
}

/// The memory that the short batches need and the long one does not.
TEST_F(RehearsalTest, OutOfMemoryComesBeforeTheFirstStep) {
  const CountingAllocator counting;
  int64_t small = 0;
  const auto peak_of_first_two = [&](int64_t step, Optimizer&) {
    if (step == 2) small = CountingAllocator::peak();
    if (step == 1) CountingAllocator::reset_peak();
  };
  printed(recipe("measure", false), {.gradients_ready = peak_of_first_two});
  const int64_t large = CountingAllocator::peak();
  ASSERT_GT(large, small * 3 / 2);

  CountingAllocator::limit((small + large) / 2);
  const Recipe late = recipe("late", false), early = recipe("early");
  const std::string at_step = test::thrown_text(
      ErrorKind::kResource, [&] { train::train(late); }, __FILE__, __LINE__);
  const std::string at_once = test::thrown_text(
      ErrorKind::kResource, [&] { train::train(early); }, __FILE__, __LINE__);
  CountingAllocator::limit(std::numeric_limits<int64_t>::max());
  EXPECT_NE(at_step.find("step 3"), std::string::npos) << at_step;
  EXPECT_EQ(test::step_lines(late.output_dir).size(), 2u);
  EXPECT_NE(at_once.find("the rehearsal of the run's largest micro-batch"), std::string::npos)
      << at_once;
  EXPECT_NE(at_once.find("a matter of size"), std::string::npos) << at_once;
  EXPECT_FALSE(std::filesystem::exists(early.output_dir));
}

}  // namespace
}  // namespace lft::rehearsal_test
