// The objective of a recipe.
#pragma once
#include <memory>
#include <string>

#include "models/family/config.h"
#include "models/objective/objective.h"
#include "src/recipe/pair_words.h"
#include "src/recipe/recipe.h"

namespace lft::train {

std::shared_ptr<const objective::Objective> make_objective(const recipe::Recipe& recipe);

/// The weight of the load balancing loss of the routers (models/layers/routing.h) in the loss: what
/// config.json says if it asks for that loss, and the objective is supervised; else 0.
double balance_weight(const recipe::Recipe& recipe, const llama::LlamaConfig& text);
/// The line of the log about it; empty: config.json does not ask for it.
std::string describe_balance(const recipe::Recipe& recipe, const llama::LlamaConfig& text);

using recipe::learns_from_labels;
using recipe::learns_from_pairs;

/// The rows of a step's global batch, as far as the recipe knows them (train.grad_accum: auto may
/// take fewer).
int64_t rows_of_step(const recipe::Recipe& recipe);

}  // namespace lft::train
