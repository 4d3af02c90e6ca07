// The published checkpoints that lft knows by name (known_models.h), with the recipe of each family
// and its memory.
#pragma once
#include <string>

namespace lft::train {

/// The bundled recipe of the family of the checkpoint that `model` names by its last component;
/// empty if it names none.
std::string family_recipe(const std::string& model);
/// README.md's table, in Markdown: a row for each family, with the parameters of each size and the
/// memory that plan_ahead.h predicts for the family's recipe on a GPU, as it is and in NF4.
std::string model_table();

}  // namespace lft::train
