// How a recipe's rows become tokens, without its weights: for what looks at data only.
#pragma once
#include <memory>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/recipe/recipe.h"

namespace lft::train {

struct RecipeEncoding {
  std::unique_ptr<text::Tokenizer> tokenizer;
  data::EncodeOptions options;
};
/// Replaces auto by the template that the adapter of lora.init_from was trained under, else by that
/// of the family where the model in the folder `model` has none, and by the model's image fit.
/// Returns what was chosen and why, in one line, or nothing.
std::string settle_data(recipe::Recipe& recipe, const std::string& model,
                        const family::ModelConfig& config);
/// Of a settled recipe.
data::EncodeRules encode_rules(const recipe::Recipe& recipe);
/// The settings that go with what the recipe trains. `special_tokens_in_text: error` is not one of
/// them: it refuses rows and changes no token.
family::InputSettings recorded_settings(const recipe::Recipe& recipe);
/// What a settled recipe says of bad samples and of images.
void apply_data_rules(const recipe::Recipe& recipe, data::EncodeOptions& options);
/// Reads config.json, tokenizer and processor files of model.path. A remark (data.max_tokens was
/// lowered, ...) becomes a notice.
RecipeEncoding recipe_encoding(const recipe::Recipe& recipe);

/// data.train, opened. Of a list its sources one after the other, a row's source() its place in it.
/// The index of source i of several is kept as part i (src/data/dataset.h).
std::unique_ptr<data::Dataset> open_train(const recipe::Recipe& recipe,
                                          const text::Tokenizer& tokenizer,
                                          const data::EncodeOptions& options,
                                          const data::IndexUse& use = {});

}  // namespace lft::train
