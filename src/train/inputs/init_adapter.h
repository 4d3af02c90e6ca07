// Whether an adapter to start from (lora.init_from) is the one that the recipe trains.
#pragma once
#include <vector>

#include "models/lora/inject.h"
#include "src/hf/adapter/adapter.h"
#include "src/recipe/recipe.h"

namespace lft::train {

/// The recipe's LoRA settings for the layers that get adapters. kUsage for a pattern of a rank or
/// an alpha that matches none of them.
lora::LoraOptions lora_options(const recipe::Recipe& recipe,
                               const std::vector<lora::LinearSite>& sites);
/// kInput unless it has exactly these layers, the recipe's variant, rank and scale; whole-trained
/// tensors of it must be trained whole again.
void check_init_adapter(const hf::AdapterDir& dir, const recipe::Recipe& recipe,
                        const std::vector<lora::LinearSite>& sites);

}  // namespace lft::train
