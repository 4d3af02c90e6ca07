// What a recipe will train, by a model's shapes alone: no weight is loaded.
#pragma once
#include <string>
#include <vector>

#include "models/llava/llava.h"
#include "models/lora/inject.h"
#include "src/recipe/recipe.h"

namespace lft {

/// Names, shapes and scopes of a model of this config, without memory for its weights.
Llava shape_only(const LlavaConfig& config);

/// The layers that get adapters: what lora.targets selects, without the scopes that are trained whole anyway.
std::vector<LinearSite> adapted_sites(const Recipe& recipe, LlavaImpl& model, std::vector<std::string>* notices);

}  // namespace lft
