// Checks whether the adapter in lora.init_from matches the recipe.
#pragma once
#include <vector>

#include "models/lora/inject.h"
#include "src/hf/adapter/adapter.h"
#include "src/recipe/recipe.h"

namespace lft::train {

/// The recipe's LoRA settings for the adapted layers. kUsage for a pattern of a rank or an alpha
/// that matches none of them.
lora::LoraOptions lora_options(const recipe::Recipe& recipe,
                               const std::vector<lora::LinearSite>& sites);
/// kInput unless it has exactly these layers and the recipe's variant, rank and scale; its fully
/// trained tensors must be trained in full again.
void check_init_adapter(const hf::AdapterDir& dir, const recipe::Recipe& recipe,
                        const std::vector<lora::LinearSite>& sites);

}  // namespace lft::train
