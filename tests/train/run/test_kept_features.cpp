// Image features that are kept: the same bits as computed again, by the pixels, dtype and shape, up
// to a limit; runs that keep them and runs that do not are equal.
#include <limits>

#include "families/tiny_qwen.h"
#include "models/base/call.h"
#include "models/ops/core/few_rows.h"
#include "models/ops/core/precision.h"
#include "src/data/batch.h"
#include "src/train/inputs/kept_features.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"

namespace lft::kept_features_test {
using namespace lft::train;
namespace {

constexpr int64_t kMuch = 1 << 30;

/// A Qwen3-VL with two deep layers of features, and three images of different sizes.
class KeptFeaturesTest : public ::testing::Test {
 protected:
  const nlohmann::json entry_ = test::qwen_vl_test::golden()["cases"]["qwen3_vl"];
  const family::ModelConfig config_ = registry::parse_config(entry_["config"], "golden");
  family::Model model_ = test::qwen_vl_test::make_qwen(config_);
  family::Batch batch_ = test::qwen_vl_test::golden_batch(config_, entry_);

  void change_tower() const {
    const at::NoGradGuard no_grad;
    for (auto& item : model_->named_parameters())
      if (!is_of_decoder(item.key())) item.value().mul_(1.5);
  }
};

void expect_same(const family::ImageFeatures& got, const family::ImageFeatures& want) {
  EXPECT_TRUE(at::equal(got.features_kd, want.features_kd));
  ASSERT_EQ(got.deepstack_features_kd.size(), want.deepstack_features_kd.size());
  for (size_t i = 0; i < want.deepstack_features_kd.size(); ++i)
    EXPECT_TRUE(at::equal(got.deepstack_features_kd[i], want.deepstack_features_kd[i])) << i;
}

TEST_F(KeptFeaturesTest, AreThoseOfTheImagesOneByOne) {
  KeptFeatures kept(kMuch), none(0);
  const family::ImageFeatures first = kept.features(*model_, batch_);
  EXPECT_EQ(std::ssize(first.deepstack_features_kd), config_.family->vision(config_).deep_features);
  EXPECT_GT(first.deepstack_features_kd.size(), 0U);
  const at::NoGradGuard no_grad;
  const family::ImageFeatures together = model_->image_features(batch_);
  EXPECT_LT((first.features_kd - together.features_kd).abs().max().item<double>(), 1e-5);
  expect_same(none.features(*model_, batch_), first);
  EXPECT_EQ(none.kept().images, 0);
  const std::vector<family::Batch> images = family::single_images(batch_);
  ASSERT_EQ(images.size(), 3U);
  expect_same(
      family::join_features({model_->image_features(images[0]), model_->image_features(images[1]),
                             model_->image_features(images[2])}),
      first);
}

TEST_F(KeptFeaturesTest, AreComputedOnce) {
  KeptFeatures kept(kMuch);
  const family::ImageFeatures first = kept.features(*model_, batch_);
  EXPECT_EQ(kept.kept().images, 3);
  EXPECT_EQ(kept.kept().bytes, static_cast<int64_t>(first.features_kd.nbytes() *
                                                    (1 + first.deepstack_features_kd.size())));
  change_tower();
  expect_same(kept.features(*model_, batch_), first);
  EXPECT_EQ(kept.kept().images, 3);
  // Other values of a single pixel are another image.
  batch_.pixels = batch_.pixels.clone();
  batch_.pixels[5] += 0.25;
  EXPECT_FALSE(at::equal(kept.features(*model_, batch_).features_kd, first.features_kd));
  EXPECT_EQ(kept.kept().images, 4);
}

TEST_F(KeptFeaturesTest, OfAnotherPrecisionAreOthers) {
  KeptFeatures kept(kMuch);
  const family::ImageFeatures whole = kept.features(*model_, batch_);
  {
    const ops::ComputeDtypeGuard compute(at::kBFloat16);
    EXPECT_FALSE(
        at::equal(kept.features(*model_, batch_).features_kd.to(at::kFloat), whole.features_kd));
  }
  EXPECT_EQ(kept.kept().images, 6);
  expect_same(kept.features(*model_, batch_), whole);
}

/// Decoding computes products of few rows in another order.
TEST_F(KeptFeaturesTest, OfAnAnswerAreThoseOfAStep) {
  KeptFeatures kept(kMuch), none(0);
  const ops::FewRowsGuard decoding;
  const family::ImageFeatures before = none.features(*model_, batch_),
                              first = kept.features(*model_, batch_);
  const ops::FewRowsGuard training(false);
  expect_same(none.features(*model_, batch_), before);
  expect_same(kept.features(*model_, batch_), first);
  expect_same(first, before);
}

TEST_F(KeptFeaturesTest, StayWithinTheirLimit) {
  KeptFeatures all(kMuch);
  const family::ImageFeatures whole = all.features(*model_, batch_);
  KeptFeatures some(all.kept().bytes - 1);
  expect_same(some.features(*model_, batch_), whole);
  EXPECT_EQ(some.kept().images, 2);
  EXPECT_LT(some.kept().bytes, all.kept().bytes);
  expect_same(some.features(*model_, batch_), whole);
}

TEST_F(KeptFeaturesTest, ThatAreNotFiniteAreComputedAgain) {
  KeptFeatures kept(kMuch);
  batch_.pixels = batch_.pixels.clone();
  batch_.pixels[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(at::isfinite(kept.features(*model_, batch_).features_kd).all().item<bool>());
  EXPECT_EQ(kept.kept().images, 2);
}

TEST_F(KeptFeaturesTest, AreComputedForAnObserver) {
  struct Count : CallObserver {
    int64_t towers = 0;
    void after(const std::string& path, const torch::nn::Module&,
               const std::vector<at::Tensor>&) override {
      towers += path == "vision_tower" ? 1 : 0;
    }
  } count;
  KeptFeatures kept(kMuch);
  const family::ImageFeatures first = kept.features(*model_, batch_);
  const ObserveCalls observe(count);
  expect_same(kept.features(*model_, batch_), first);
  EXPECT_EQ(count.towers, 3);
}

/// Three epochs over tiny images, with an evaluation after each.
recipe::Recipe frozen_tower(const test::TinyRun& run, const std::string& out, int64_t mebibytes) {
  recipe::Recipe recipe = run.recipe(out);
  recipe.full.clear();
  recipe.lora.targets = {"llm:all-linear"};
  recipe.data.image_cache_mb = mebibytes;
  recipe.train.max_steps = 9;
  recipe.train.eval_every_steps = 3;
  return recipe;
}

TEST(RunsWithKeptFeatures, EqualThoseWithout) {
  const test::TinyRun run;
  for (const auto& [out, mebibytes] : {std::pair{"kept", 16}, std::pair{"again", 0}})
    ASSERT_EQ(train::train(frozen_tower(run, out, mebibytes)), 0);
  const test::RunBytes kept = test::run_bytes(run.dir().file("kept"), 9),
                       again = test::run_bytes(run.dir().file("again"), 9);
  EXPECT_EQ(kept.losses, again.losses);
  EXPECT_TRUE(kept == again);
}

TEST(RunsWithKeptFeatures, NeedThePlannedMemory) {
  const test::TinyRun run;
  recipe::Recipe recipe = frozen_tower(run, "out", 16);
  recipe.data.eval.clear();
  RunInputs inputs = open_inputs(recipe);
  const std::vector<data::SampleLength> lengths = sample_lengths(inputs.data);
  const MemoryPlan plan = plan_memory(inputs, worst_micro_batch(inputs, lengths));
  const auto part = std::ranges::find(plan.parts, kFeatures, &MemoryPart::name);
  ASSERT_NE(part, plan.parts.end());
  const RunModel model = build_model(inputs);
  for (int64_t i = 0; i < inputs.data.train->size(); ++i)
    model.model->features(
        data::collate({inputs.data.train->get(i)}, inputs.data.encode, inputs.device));
  EXPECT_EQ(static_cast<double>(model.model->feature_source->kept().bytes), part->bytes);
  inputs.recipe.data.image_cache_mb = 0;
  EXPECT_EQ(plan_memory(inputs, worst_micro_batch(inputs, lengths)).peak, plan.peak - part->bytes);
}

TEST(RunsWithKeptFeatures, AreThoseWithAFrozenTowerAndProjector) {
  const test::TinyRun run;
  recipe::Recipe recipe = frozen_tower(run, "out", 16);
  const auto source_of = [](const recipe::Recipe& each) {
    return build_model(open_inputs(each)).model->feature_source;
  };
  EXPECT_NE(source_of(recipe), nullptr);
  recipe.lora.targets = {"llm:all-linear", "vision:all-linear"};
  EXPECT_EQ(source_of(recipe), nullptr);
  recipe.lora.targets = {"llm:all-linear", "projector:all-linear"};
  EXPECT_EQ(source_of(recipe), nullptr);
  recipe.lora.targets = {"llm:all-linear"};
  recipe.full = {"projector"};
  EXPECT_EQ(source_of(recipe), nullptr);
}

}  // namespace
}  // namespace lft::kept_features_test
