// Compares a recipe's chat template with the checkpoint's own.
#pragma once
#include <string>

#include "src/data/encode_options.h"
#include "src/recipe/recipe.h"
#include "src/text/tokenizer.h"

namespace lft::train {

/// A warning with the first difference between the prompts of data.template and of the checkpoint's
/// template. Empty if the recipe names no template, the checkpoint has none, or both prompts of one
/// question about an image are equal. `recipe` is as the user wrote it, `encode` the result.
std::string judge_template(const recipe::Recipe& recipe, const data::EncodeOptions& encode,
                           const text::Tokenizer& tokenizer);

}  // namespace lft::train
