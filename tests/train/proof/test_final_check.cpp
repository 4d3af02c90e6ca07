// The final check of a run: an adapter that has no effect, never had a gradient or is not finite is
// not written.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "src/checkpoint/checkpoint.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/train/optim/adamw.h"
#include "src/train/proof/final_check.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"

namespace lft::final_check_test {
using namespace lft::checkpoint;
using namespace lft::hf;
using namespace lft::io;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::recipe;
using namespace lft::train;
namespace {

class Gate : public ::testing::Test {
 protected:
  explicit Gate(const std::string& variant = "lora") {
    inject_lora(select_sites(linear_sites(*model_), {"llm:all-linear"}),
                {.variant = variant, .rank = 2, .alpha = 4, .dropout = 0}, 7);
    trainables_ = make_trainable(*model_, {});
    at::Tensor ids = at::full({1, 20}, 7, at::kLong), labels = at::full({1, 20}, -100, at::kLong);
    labels[0][19] = 7;
    probe_ = {.input_ids_bt = ids,
              .labels_bt = labels,
              .lengths_b = at::full({1}, 20, at::kLong),
              .packed = {},
              .pixels = {},
              .images = {}};
  }
  void fill_b(double value) {
    const at::NoGradGuard no_grad;
    for (Trainable& trainable : trainables_) {
      if (trainable.name.ends_with("lora_B.weight")) trainable.tensor.fill_(value);
    }
  }
  /// State after `steps` updates of every adapter.
  void check(int64_t steps = 5, at::ScalarType compute = at::kFloat) {
    Optimizer optimizer(trainables_, param_groups(trainables_, 1e-3, -1), make_adamw({}));
    for (Slot& slot : optimizer.slots()) slot.steps = steps;
    check_trained(model_, optimizer, probe_, compute);
  }
  /// Also leaves the adapters in place.
  void expect_passes() {
    const at::Tensor before = model_->all_logits(probe_);
    EXPECT_NO_THROW(check());
    EXPECT_TRUE(at::equal(before, model_->all_logits(probe_)));
  }

  test::TempDir scratch_;
  Model model_ = load_model(ModelDir::open(test::write_tiny_llava(scratch_.file("model"))),
                            at::kFloat, at::kCPU);
  std::vector<Trainable> trainables_;
  family::Batch probe_;
};

TEST_F(Gate, PassesWhatLearnedAndLeavesTheAdaptersInPlace) {
  fill_b(0.1);
  expect_passes();
}

TEST_F(Gate, NamesAdaptersThatAreStillZero) {
  fill_b(0.1);
  {
    const at::NoGradGuard no_grad;
    trainables_[3].tensor.zero_();
  }
  ASSERT_TRUE(trainables_[3].name.ends_with("lora_B.weight"));
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "still zero", check());
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, trainables_[3].name, check());
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "no batch reached them", check(/*steps=*/0));
}

TEST_F(Gate, NamesATensorThatIsNotFinite) {
  fill_b(0.1);
  const at::NoGradGuard no_grad;
  trainables_[2].tensor.view(-1)[0] = std::numeric_limits<float>::infinity();
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, trainables_[2].name, check());
}

TEST_F(Gate, SeesAnAdapterThatChangesNoLogit) {
  fill_b(1e-30);
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "does not change the model's answers", check());
}

/// An adapter whose B is not zero at its start: it must have changed since.
class GateOfPissa : public Gate {
 protected:
  GateOfPissa() : Gate("pissa") {}
  void move_b(double by) {
    const at::NoGradGuard no_grad;
    for (Trainable& trainable : trainables_) {
      if (trainable.name.ends_with("lora_B.weight")) trainable.tensor.add_(by);
    }
  }
};

TEST_F(GateOfPissa, PassesWhatLeftItsStartAndLeavesTheAdaptersInPlace) {
  move_b(0.1);
  expect_passes();
}

TEST_F(GateOfPissa, NamesAdaptersThatAreAsTheyStarted) {
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "still as they started", check());
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "no batch reached them", check(/*steps=*/0));
}

TEST_F(GateOfPissa, SeesAnAdapterThatChangesNoLogit) {
  {
    const at::NoGradGuard no_grad;  // one element, by less than a BF16 step
    for (Trainable& trainable : trainables_) {
      if (!trainable.name.ends_with("lora_B.weight")) continue;
      at::Tensor first = trainable.tensor.view(-1)[0];
      first.mul_(1 + 0x1p-22);
    }
  }
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "the same bits as at its start",
                   check(/*steps=*/5, at::kBFloat16));
}

TEST(GateOfARun, ALearningRateOfZeroIsRefusedBeforeTheFirstStep) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.full.clear();
  recipe.optim.lr = 0;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "optim.lr", train::train(recipe));
  recipe.optim.lr = 1e-2;
  recipe.train.max_steps = 1;
  recipe.optim.warmup_ratio = 1;
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "the learning rate of every step is 0", train::train(recipe));
  EXPECT_FALSE(std::filesystem::exists(recipe.output_dir));
}

TEST(GateOfARun, AnAdapterNoBatchReached) {
  const test::TinyRun run;
  const Recipe recipe = run.projector_recipe("out", /*without_images=*/true);
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "multi_modal_projector.linear_1.lora_B.weight",
                   train::train(recipe));
}

TEST(GateOfARun, NonFiniteWeightsAreNeverSaved) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.checkpoint.every_steps = 1;
  const auto spoil = [](int64_t step, Optimizer& optimizer) {
    const at::NoGradGuard no_grad;
    if (step == 4)
      optimizer.slots()[1].param.tensor.view(-1)[0] = std::numeric_limits<float>::quiet_NaN();
  };
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "not finite; nothing was saved",
                   train::train(recipe, {.gradients_ready = spoil}));
  const std::vector<CheckpointStatus> checkpoints =
      list_checkpoints(recipe.output_dir + "/checkpoints", true);
  ASSERT_EQ(checkpoints.front().step, 3);
  EXPECT_EQ(checkpoints.front().fault, "");
}

}  // namespace
}  // namespace lft::final_check_test
