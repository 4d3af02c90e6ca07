// Lists of fields by role: those that lft debug bare and overfit disable, and the parts of a run.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/recipe/diff.h"
#include "src/recipe/roles.h"

namespace lft::roles_test {
using namespace lft::recipe;
namespace {

/// A recipe with every optional part enabled.
Recipe everything() {
  Recipe recipe;
  recipe.lora.alpha = 512;
  recipe.optim = {.schedule = ScheduleKind::kLinear,
                  .eps = 1e-6,
                  .weight_decay = 0.1,
                  .min_lr_ratio = 0.1,
                  .neftune_alpha = 5};
  recipe.train.grad_accum = 4;
  recipe.train.global_batch = 64;
  recipe.train.activation_checkpointing = Checkpointing::kBlock;
  return recipe;
}

std::vector<std::string> changes(const Recipe& before, const Recipe& after) {
  std::vector<std::string> texts;
  for (const RecipeChange& change : changed_fields(before, after))
    texts.push_back(change.key + " " + change.after);
  return texts;
}

TEST(Roles, TheCoreIsWithoutOptionalParts) {
  Recipe core = everything();
  strip_to_core(core);
  EXPECT_EQ(changes(everything(), core),
            (std::vector<std::string>{
                "lora.dropout 0.0", "optim.weight_decay 0.0", "optim.clip_grad_norm 0.0",
                "optim.schedule constant", "optim.warmup_ratio 0.0", "optim.min_lr_ratio 0.0",
                "optim.neftune_alpha 0.0", "precision.compute fp32", "train.grad_accum 1",
                "train.global_batch 0", "train.activation_checkpointing none"}));
}

TEST(Roles, AFitKeepsPrecisionClippingAndRecomputation) {
  Recipe fit = everything();
  strip_for_fit(fit);
  EXPECT_EQ(changes(everything(), fit),
            (std::vector<std::string>{"lora.dropout 0.0", "optim.weight_decay 0.0",
                                      "optim.schedule constant", "optim.warmup_ratio 0.0",
                                      "optim.min_lr_ratio 0.0", "optim.neftune_alpha 0.0",
                                      "train.grad_accum 1", "train.global_batch 0"}));
}

TEST(Roles, PartsPutBackOneAfterTheOtherGiveTheRecipe) {
  Recipe recipe = everything();
  strip_to_core(recipe);
  recipe.optim.eps = 1e-8;
  recipe.lora.alpha = 256;
  for (const NamedPart& part : optional_parts()) {
    const Recipe before = recipe;
    copy_part(recipe, everything(), part.part);
    EXPECT_FALSE(changes(before, recipe).empty()) << part.name;
    for (const RecipeChange& change : changed_fields(before, recipe)) {
      const std::vector<std::string> fields = part_fields(part.part);
      EXPECT_NE(std::find(fields.begin(), fields.end(), change.key), fields.end()) << change.key;
    }
  }
  EXPECT_TRUE(changed_fields(recipe, everything()).empty());
}

TEST(Roles, FieldsThatSayWhatIsTrained) {
  Recipe other;
  other.full = {"projector"};
  other.lora = {.variant = "rslora",
                .rank = 4,
                .alpha = 1,
                .dropout = 0.5,
                .targets = {"llm:q_proj"},
                .rank_pattern = {{"q_proj", 8}},
                .alpha_pattern = {{"q_proj", 8}},
                .init_from = "adapter"};
  std::vector<std::string> keys;
  for (const RecipeChange& change : changed_fields(Recipe{}, other))
    if (change.trains) keys.push_back(change.key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"lora.variant", "lora.rank", "lora.alpha", "lora.targets",
                                      "lora.rank_pattern", "lora.alpha_pattern", "full"}));
}

}  // namespace
}  // namespace lft::roles_test
