#include "models/family/tower.h"

#include <algorithm>
#include <map>

#include "models/family/scopes.h"

namespace lft::family {
namespace {

constexpr std::string_view kWeight = ".weight";

bool is_in_any(const std::string& name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) {
    return name.starts_with(module) && name[module.size()] == '.';
  });
}

/// The index in "qkv" of the first letter in the last part of q_proj, k_proj, v_proj.
size_t place_in_qkv(const std::string& module) {
  return std::string_view("qkv").find(module[module.rfind('.') + 1]);
}

}  // namespace

Tower read_tower(const std::vector<TensorSpec>& tensors, const TowerFacts& facts,
                 const std::vector<std::string>& unused_modules) {
  Tower tower;
  static_cast<TowerFacts&>(tower) = facts;
  const int64_t first = facts.numbers.empty() ? 0 : facts.numbers.front();
  const std::string block = facts.layers + std::to_string(first) + ".",
                    root = facts.layers.substr(0, facts.layers.find('.') + 1);
  std::map<std::string, std::vector<int64_t>> shapes;  // shapes of linear layers, [out, in]
  size_t other_norms = 0;
  for (const TensorSpec& tensor : tensors) {
    if (!tensor.name.starts_with(root)) continue;
    const size_t dims = tensor.shape.size();
    if (!tensor.name.starts_with(facts.layers)) {
      if (dims > 1 && !is_in_any(tensor.name, unused_modules)) tower.tables.push_back(tensor.name);
      continue;
    }
    if (!tensor.name.starts_with(block)) continue;
    if (tensor.name.find('.', block.size()) == std::string::npos) tower.branch_scales = true;
    if (!tensor.name.ends_with(kWeight)) continue;
    const std::string module =
        tensor.name.substr(block.size(), tensor.name.size() - block.size() - kWeight.size());
    const std::string part = module.substr(0, module.find('.'));
    const bool attention = part == "attention" || part.find("attn") != std::string::npos;
    if (dims == 2 && !attention && facts.sparse && tensor.experts == 0) continue;
    if (dims == 2) {
      shapes[module] = tensor.shape;
      (attention ? tower.qkv : tower.mlp_in).push_back(module);
    } else if (dims == 1) {
      tower.norms.push_back(module);
      if (attention)
        tower.head_norms = true;
      else if (++other_norms > 2)
        tower.branch_norms = true;
    }
  }
  tower.o = tower.qkv.back();
  tower.qkv.pop_back();
  std::ranges::stable_sort(tower.qkv, {}, place_in_qkv);
  tower.mlp_out = tower.mlp_in.back();
  tower.mlp_in.pop_back();
  tower.width = shapes[tower.o][0];
  tower.inner = shapes[tower.mlp_out][1];
  tower.heads = shapes[tower.o][1] / facts.head_dim;
  tower.kv_heads = tower.qkv.size() == 3 ? shapes[tower.qkv[1]][0] / facts.head_dim : tower.heads;
  return tower;
}

ProjectorShape read_projector(const std::vector<TensorSpec>& tensors) {
  ProjectorShape projector;
  for (const auto& [name, shape, experts] : tensors) {
    if (!name.starts_with(kProjector) || shape.size() != 2) continue;
    if (name.ends_with(kWeight))
      projector.layers.push_back(
          {.name = name.substr(0, name.size() - kWeight.size()), .in = shape[1], .out = shape[0]});
    else
      projector.layers.push_back({.name = name, .in = shape[0], .out = shape[1], .bare = true});
  }
  return projector;
}

}  // namespace lft::family
