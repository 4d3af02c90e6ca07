#include "src/train/inputs/recipe_encoding.h"

#include "src/base/log.h"
#include "src/hf/model_dir.h"

namespace lft::train {

data::EncodeRules encode_rules(const recipe::Recipe& recipe) {
  return {recipe.data.chat_template, recipe.data.image_fit, recipe.data.max_tokens};
}

void apply_data_rules(const recipe::Recipe& recipe, data::EncodeOptions& options) {
  options.skip_bad = recipe.data.on_bad_sample == "skip";
  options.max_bad = recipe.data.max_bad;
  options.count_unknown = recipe.data.unknown_keys == "warn";
  options.image_limits.max_pixels = recipe.data.max_pixels;
  options.image_limits.max_side = recipe.data.max_side;
  options.image_limits.follow_symlinks = recipe.data.follow_symlinks;
}

RecipeEncoding recipe_encoding(const recipe::Recipe& recipe) {
  const hf::ModelDir model = hf::ModelDir::config_only(recipe.model.path);
  RecipeEncoding encoding{.tokenizer = text::Tokenizer::load(recipe.model.path), .options = {}};
  std::string remark;
  encoding.options = data::encode_options(recipe.model.path, model.config, *encoding.tokenizer,
                                          encode_rules(recipe), &remark);
  apply_data_rules(recipe, encoding.options);
  if (!remark.empty()) notice(remark);
  return encoding;
}

}  // namespace lft::train
