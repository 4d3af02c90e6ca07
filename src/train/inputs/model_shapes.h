// What a recipe will train, by a model's shapes alone: no weight is loaded.
#pragma once
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/lora/inject.h"
#include "src/recipe/recipe.h"

namespace lft::train {

/// Names, shapes and scopes of a model of this config, without memory for its weights.
family::Model shape_only(const family::ModelConfig& config);

/// Whether a layer or parameter, by its canonical name, is of the decoder's layers, whose linear
/// layers may be stored as codes.
inline bool in_decoder_layer(const std::string& name) {
  return name.starts_with("language_model.model.layers.");
}

/// Whether `full` trains the parameter of a canonical name.
bool trains_whole(const recipe::Recipe& recipe, const std::string& name);

/// What a run leaves below output_dir: "model" where `full` trains all, "parts" where it trains
/// less and no layer gets an adapter, else "adapter".
std::string product_of(const recipe::Recipe& recipe);

/// The layers that get adapters: what lora.targets selects, without the scopes that are trained
/// whole anyway.
std::vector<lora::LinearSite> adapted_sites(const recipe::Recipe& recipe, family::ModelImpl& model,
                                            std::vector<std::string>* notices);

}  // namespace lft::train
