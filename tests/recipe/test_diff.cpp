// Differences between two recipes: every field counts, and only those that do not change the
// run may change when it is resumed.
#include <gtest/gtest.h>

#include <cmath>

#include "src/recipe/diff.h"
#include "src/recipe/recipe_fields.h"
#include "src/recipe/strict_reader.h"

namespace lft::diff_test {
using namespace lft::recipe;
namespace {

/// Visitor: another value for every field.
struct ChangeAll {
  void field(const char*, int64_t& value, const FieldRule&, const char*) { value += 1; }
  void field(const char*, double& value, const FieldRule&, const char*) {
    value = std::abs(value) + 0.125;
  }
  void field(const char*, bool& value, const FieldRule&, const char*) { value = !value; }
  void field(const char*, Shuffle& value, const FieldRule&, const char*) {
    value.blocks = !value.blocks;
  }
  void field(const char*, std::string& value, const FieldRule&, const char*) { value += "x"; }
  template <class E>
  void field(const char*, Choice<E>& value, const FieldRule&, const char*) {
    value = static_cast<E>(value == E{} ? 1 : 0);
  }
  void field(const char*, TrainData& value, const FieldRule&, const char*) { value.path += "x"; }
  void field(const char*, std::vector<std::string>& value, const FieldRule&, const char*) {
    value.push_back("x");
  }
  void field(const char*, Mapping& value, const FieldRule&, const char*) {
    value.json = R"({"x": 1})";
  }
  template <class T>
  void field(const char*, ByPattern<T>& value, const FieldRule&, const char*) {
    value.emplace_back("q_proj", T{1});
  }
  void field(const char*, std::array<double, 2>& value, const FieldRule&, const char*) {
    value[1] = 0.5;
  }
  template <class Body>
  void section(const char*, Body body) {
    body();
  }
};

TEST(RecipeDiff, EqualRecipesHaveNone) { EXPECT_TRUE(changed_fields(Recipe{}, Recipe{}).empty()); }

TEST(RecipeDiff, EveryFieldIsCompared) {
  Recipe changed;
  ChangeAll change;
  visit(change, changed);
  std::vector<std::string> keys, free_keys;
  for (const RecipeChange& each : changed_fields(Recipe{}, changed)) {
    keys.push_back(each.key);
    if (each.may_change) free_keys.push_back(each.key);
    EXPECT_NE(each.before, each.after) << each.key;
  }
  EXPECT_EQ(keys, field_names().fields);
  EXPECT_EQ(free_keys, (std::vector<std::string>{"output_dir",
                                                 "model.path",
                                                 "data.train",
                                                 "data.eval",
                                                 "data.image_root",
                                                 "data.columns",
                                                 "data.follow_symlinks",
                                                 "data.unknown_keys",
                                                 "data.max_bad",
                                                 "data.workers",
                                                 "data.image_cache_mb",
                                                 "optim.offload",
                                                 "train.epochs",
                                                 "train.max_steps",
                                                 "train.activation_checkpointing",
                                                 "train.activation_offload",
                                                 "train.worst_first",
                                                 "train.eval_every_steps",
                                                 "train.patience",
                                                 "train.shard",
                                                 "checkpoint.every_steps",
                                                 "checkpoint.keep",
                                                 "checkpoint.at_step_zero",
                                                 "dist.timeout_s",
                                                 "log.every_steps",
                                                 "log.tensorboard",
                                                 "log.answers",
                                                 "log.layer_grad_norms_every",
                                                 "log.layer_activation_norms_every",
                                                 "log.expect_first_loss"}));
}

TEST(RecipeDiff, ValuesStandAsARecipeWritesThem) {
  Recipe before, after;
  after.lora.targets = {"llm:q_proj", "projector:all-linear"};
  after.optim.projector_lr = 2e-5;
  after.optim.betas = {0.9, 0.95};
  after.data.image_root = "images/a b";
  const std::vector<RecipeChange> changes = changed_fields(before, after);
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].before, "[\"llm:all-linear\"]");
  EXPECT_EQ(changes[0].after, "[\"llm:q_proj\", \"projector:all-linear\"]");
  EXPECT_EQ(changes[1].before, "null");
  EXPECT_EQ(changes[1].after, "\"images/a b\"");
  EXPECT_EQ(changes[2].before, "null");
  EXPECT_EQ(changes[2].after, "2.0e-05");
  EXPECT_EQ(changes[3].before, "[0.9, 0.999]");
  EXPECT_EQ(changes[3].after, "[0.9, 0.95]");
}

TEST(RecipeDiff, TheSmallestChangeOfANumberIsSeen) {
  Recipe before, after;
  after.optim.lr = std::nextafter(before.optim.lr, 1.0);
  ASSERT_EQ(changed_fields(before, after).size(), 1u);
}

}  // namespace
}  // namespace lft::diff_test
