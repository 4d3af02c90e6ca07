// Tokenizes a recipe's rows without the model's weights, for commands that need only data.
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
/// Replaces auto by the template recorded in the adapter of lora.init_from, else by the family's if
/// the model in the folder `model` has none, and by the model's image fit. Returns the choice and
/// its reason in one line, or nothing.
std::string settle_data(recipe::Recipe& recipe, const std::string& model,
                        const family::ModelConfig& config);
/// `recipe` must be settled.
data::EncodeRules encode_rules(const recipe::Recipe& recipe);
/// The settings recorded with the trained model. `special_tokens_in_text: error` is not among them:
/// it rejects rows and changes no token.
family::InputSettings recorded_settings(const recipe::Recipe& recipe);
/// Applies a settled recipe's rules for bad samples and images.
void apply_data_rules(const recipe::Recipe& recipe, data::EncodeOptions& options);
/// Reads config.json, tokenizer and processor files of model.path. A remark (data.max_tokens was
/// lowered, ...) becomes a notice.
RecipeEncoding recipe_encoding(const recipe::Recipe& recipe);

/// Opens data.train. The sources of a list are concatenated; a row's source() is its position in
/// the list. The index of source i of several is stored as part i (src/data/dataset.h).
std::unique_ptr<data::Dataset> open_train(const recipe::Recipe& recipe,
                                          const text::Tokenizer& tokenizer,
                                          const data::EncodeOptions& options,
                                          const data::IndexUse& use = {});

}  // namespace lft::train
