// Compares a recipe's chat template with the checkpoint's own, and its prompts with its answers.
#pragma once
#include <string>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/recipe/recipe.h"
#include "src/text/tokenizer.h"

namespace lft::train {

/// A warning with the first difference between the prompts of data.template and of the checkpoint's
/// template. Empty if the recipe names no template, the checkpoint has none, or both prompts of one
/// question about an image are equal. `recipe` is as the user wrote it, `encode` the result.
std::string judge_template(const recipe::Recipe& recipe, const data::EncodeOptions& encode,
                           const text::Tokenizer& tokenizer);

/// A warning if the template writes words between the prompt that asks for an answer and an answer
/// without reasoning, as an empty <think> block, and one of the first rows has such an answer.
/// Empty otherwise.
std::string judge_answer_start(const data::EncodeOptions& encode, const data::Dataset& rows);

}  // namespace lft::train
