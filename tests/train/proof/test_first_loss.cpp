// The loss before training against the uniform-guess loss, and the effect of images on it. The
// figures come from closed forms: a zero head guesses, a zero patch embedding ignores images.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/loss_sum.h"
#include "src/base/text.h"
#include "src/train/proof/first_loss.h"
#include "src/train/proof/first_loss_trials.h"
#include "src/train/run/run.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace lft::first_loss_test {
using namespace lft::family;
using namespace lft::llava;
using namespace lft::recipe;
using namespace lft::train;
namespace {

class FirstLossTest : public ::testing::Test {
 protected:
  FirstLossTest() : run_(make_run(open_inputs(recipe()))) {}
  Recipe recipe() const {
    Recipe recipe = files_.recipe("out");
    recipe.data.eval.clear();
    return recipe;
  }
  /// A weight of the base by the end of its name.
  at::Tensor weight(const std::string& end) {
    for (auto& parameter : run_.model.model->named_parameters())
      if (parameter.key().ends_with(end)) return parameter.value().detach();
    return {};
  }
  FirstLoss measure() {
    const at::NoGradGuard no_grad;
    const family::Batch batch = data::make_batch(
        {.encode = run_.probe.encode, .device = run_.probe.device, .packed = run_.probe.packed},
        run_.probe.samples);
    int64_t supervised = 0;
    for (const data::Sample& sample : run_.probe.samples) supervised += sample.supervised();
    const double loss = test::loss_sum(run_.model.model, batch).item<double>();
    return measure_first_loss(run_.model.model, run_.probe, loss / static_cast<double>(supervised));
  }
  std::string said() { return join(judge_first_loss(measure(), {}), "\n"); }

  test::TinyRun files_;
  train::Run run_;
};

TEST_F(FirstLossTest, AHeadOfZerosGuesses) {
  weight("lm_head.weight").zero_();
  const FirstLoss first = measure();
  EXPECT_DOUBLE_EQ(first.guessing, std::log(264.0));
  EXPECT_NEAR(first.loss, first.guessing, 1e-5);  // float32 sums of 264 equal terms
  EXPECT_NEAR(first.images->grey, first.guessing, 1e-5);
}

TEST_F(FirstLossTest, AHealthyBaseDrawsNoSuspicion) {
  const FirstLoss first = measure();
  ASSERT_TRUE(first.images && first.images->other);
  EXPECT_NE(first.images->own, *first.images->other);
  EXPECT_NE(first.images->own, first.images->grey);
  EXPECT_EQ(said(), "");
  EXPECT_NE(describe_first_loss(first).find("(random guessing: 5.576)"), std::string::npos)
      << describe_first_loss(first);
}

TEST_F(FirstLossTest, ImagesThatAreNotSeenAreNamed) {
  weight("patch_embedding.weight").zero_();
  EXPECT_NE(said().find("the images change nothing"), std::string::npos) << said();
}

/// A confident head whose rows belong to other tokens.
TEST_F(FirstLossTest, ALossAboveGuessingIsNamed) {
  weight("lm_head.weight").mul_(30);
  EXPECT_NE(said().find("does worse than random guessing (loss"), std::string::npos) << said();
  const std::vector<std::string> tried =
      try_suspects(run_.model.model, run_.probe, run_, measure());
  ASSERT_EQ(tried.size(), 3u);  // the recipe has llava-hf and starts from no adapter
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(tried[i].rfind(i == 0 ? "under data.template: llava-v1 it is "
                                    : "under data.template: plain it is ",
                             0),
              0u)
        << tried[i];
    EXPECT_EQ(tried[i].find("at fault"), std::string::npos) << tried[i];
  }
  EXPECT_EQ(tried[2], "nothing looks odd in the base's own weights");  // in the file
  EXPECT_NE(join(judge_first_loss(measure(), tried)).find("Tried: under data.template"),
            std::string::npos);
}

TEST_F(FirstLossTest, AnAdapterToStartFromIsTakenOffAndPutBack) {
  run_.recipe.lora.init_from = "an adapter";
  const at::NoGradGuard no_grad;
  const double before = measure().loss;
  for (const lora::Trainable& each : run_.model.trainables)
    if (each.name.ends_with("lora_B.weight")) at::Tensor(each.tensor).normal_(0, 300);
  const FirstLoss first = measure();
  ASSERT_TRUE(first.above_guessing()) << first.loss;
  const std::string tried = join(try_suspects(run_.model.model, run_.probe, run_, measure()), "\n");
  char expected[64];
  std::snprintf(expected, sizeof expected, "without lora.init_from it is %.4g", before);
  EXPECT_NE(tried.find(expected), std::string::npos) << tried;
  EXPECT_EQ(measure().loss, first.loss) << "the adapters are back";
}

TEST(FirstLoss, AChangeExplainsItThatTakesItWellBelowAndNotAboveGuessing) {
  const FirstLoss first{.loss = 15.1, .guessing = 6.46};
  EXPECT_TRUE(first.explained_by(3.67));
  EXPECT_FALSE(first.explained_by(14.8));
  EXPECT_FALSE(first.explained_by(7.2));
  EXPECT_FALSE((FirstLoss{.loss = 7.0, .guessing = 6.46}.explained_by(6.8)));
}

TEST_F(FirstLossTest, OneImageForAllRowsIsNotComparedWithOthers) {
  for (data::Sample& sample : run_.probe.samples) sample.images = run_.probe.samples.front().images;
  const FirstLoss first = measure();
  ASSERT_TRUE(first.images);
  EXPECT_FALSE(first.images->other);
}

TEST_F(FirstLossTest, ARecipeMayPinIt) {
  const FirstLoss first = measure();
  EXPECT_NO_THROW(require_first_loss(first, 0));
  EXPECT_NO_THROW(require_first_loss(first, 1.015 * first.loss));
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "log.expect_first_loss",
                   require_first_loss(first, 1.03 * first.loss));
}

/// The probe's loss and that of fewer rows differ.
TEST(FirstLoss, RowsThatAreNotTheWholeProbeAreCounted) {
  FirstLoss first = {
      .loss = 4.25, .guessing = 10.5, .images = ImageLosses{.own = 5.5, .grey = 6, .other = {}}};
  const std::string begin =
      "loss before training: 4.25 per token (random guessing: 10.5). Image check: ";
  EXPECT_EQ(describe_first_loss(first), begin + "5.5 with the right images, 6 with grey ones");
  first.images->all = false;
  first.images->rows = 1;
  EXPECT_EQ(describe_first_loss(first),
            begin + "5.5 with the right images, 6 with grey ones (the first row with images)");
  first.images->rows = 2;
  first.images->other = 7;
  EXPECT_EQ(describe_first_loss(first), begin +
                                            "5.5 with the right images, 7 with swapped ones, 6 "
                                            "with grey ones (the first 2 rows with images)");
}

TEST(BoundedGradients, OneThatCannotBeSquaredIsRefused) {
  TrainabilityReport proof;
  ProofRow& row = proof.rows.emplace_back();
  row.module = "a.down_proj";
  row.grad_norm_b = 1.8e19;
  EXPECT_NO_THROW(require_bounded_gradients(proof));
  row.grad_norm_b = 1e25;
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "a.down_proj", require_bounded_gradients(proof));
}

}  // namespace
}  // namespace lft::first_loss_test
