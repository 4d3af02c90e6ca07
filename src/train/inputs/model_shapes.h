// Describes what a recipe trains from the model's shapes alone: no weight is loaded.
#pragma once
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/lora/inject.h"
#include "src/recipe/recipe.h"

namespace lft::train {

/// Names, shapes and scopes of a model of this config, without memory for its weights.
family::Model shape_only(const family::ModelConfig& config);

/// Whether a layer or parameter (canonical name) belongs to the decoder's layers, whose linear
/// layers may be quantized, except for the gates of experts.
bool in_decoder_layer(const std::string& name);

/// Whether `full` trains the parameter with this canonical name.
bool trains_whole(const recipe::Recipe& recipe, const std::string& name);

/// What a run writes below output_dir: "model" if `full` trains everything, "parts" if it trains
/// less and no layer has an adapter, else "adapter".
std::string product_of(const recipe::Recipe& recipe);

/// The adapted layers: those selected by lora.targets,
/// except in scopes that are fully trained.
std::vector<lora::LinearSite> adapted_sites(const recipe::Recipe& recipe, family::ModelImpl& model,
                                            std::vector<std::string>* notices);

}  // namespace lft::train
