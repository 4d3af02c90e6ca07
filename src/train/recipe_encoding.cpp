#include "src/train/recipe_encoding.h"

#include "src/base/log.h"
#include "src/hf/model_dir.h"

namespace lft {

RecipeEncoding recipe_encoding(const Recipe& recipe) {
  const ModelDir model = ModelDir::config_only(recipe.model.path);
  RecipeEncoding encoding{.tokenizer = Tokenizer::load(recipe.model.path), .options = {}};
  std::string remark;
  encoding.options = encode_options(recipe.model.path, model.config, *encoding.tokenizer, recipe.data.chat_template, recipe.data.image_fit,
                                    recipe.data.max_tokens, &remark);
  encoding.options.skip_bad = recipe.data.on_bad_sample == "skip";
  if (!remark.empty()) notice(remark);
  return encoding;
}

}  // namespace lft
