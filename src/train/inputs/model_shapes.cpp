#include "src/train/inputs/model_shapes.h"

#include <algorithm>

#include "models/family/model.h"
#include "models/lora/inject_select.h"

namespace lft::train {
namespace {

bool contains(const std::vector<std::string>& items, const std::string& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

bool trains_whole(const recipe::Recipe& recipe, const std::string& name) {
  return contains(recipe.full, "all") || contains(recipe.full, lora::scope_of(name));
}

std::string product_of(const recipe::Recipe& recipe) {
  if (contains(recipe.full, "all")) return "model";
  return recipe.lora.targets.empty() ? "parts" : "adapter";
}

bool in_decoder_layer(const std::string& name) {
  if (!name.starts_with("language_model.model.layers.")) return false;
  const auto is_gate = [&](std::string_view module) {
    return name.ends_with(module) || name.ends_with(std::string(module) + ".weight");
  };
  return !is_gate(".mlp.gate") && !is_gate(".shared_expert_gate");
}

std::vector<lora::LinearSite> adapted_sites(const recipe::Recipe& recipe, family::ModelImpl& model,
                                            std::vector<std::string>* notices) {
  if (contains(recipe.full, "all") || recipe.lora.targets.empty()) return {};
  std::vector<lora::LinearSite> sites =
      lora::select_sites(lora::linear_sites(model), recipe.lora.targets);
  const size_t selected = sites.size();
  std::erase_if(sites,
                [&](const lora::LinearSite& site) { return contains(recipe.full, site.scope); });
  if (sites.size() < selected && notices != nullptr) {
    notices->push_back(std::to_string(selected - sites.size()) +
                       " layers of lora.targets get no adapter: `full` trains them whole");
  }
  return sites;
}

family::Model shape_only(const family::ModelConfig& config) {
  return config.family->build(config, at::kFloat, at::Device(at::kMeta), ops::BaseStorage::kDense);
}

}  // namespace lft::train
