#include "src/hf/adapter/expert_adapter.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>

namespace lft::hf {
namespace {

constexpr std::string_view kInner = ".base_layer";

/// The part of a dotted name before its last component.
std::string_view parent_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

}  // namespace

std::string wrapped_experts(const family::CheckpointNames& names, const std::string& wrapper,
                            bool has_inner, const std::vector<std::string>& parameters) {
  const bool inner = wrapper.ends_with(kInner);
  const std::string parent = inner ? std::string(parent_of(wrapper)) : wrapper;
  std::vector<std::string> modules;  // the inner one first
  for (const std::string& end : names.experts) {
    if (parent.ends_with(parent_of(end)))
      modules.push_back(parent + end.substr(parent_of(end).size()));
  }
  if (modules.empty()) return wrapper;
  if (inner) return modules.front();
  if (has_inner) return modules.back();
  const auto named = std::ranges::find_if(modules, [&](const std::string& module) {
    return names_parameter(parameters, names.peft_name(module));
  });
  return named == modules.end() ? modules.back() : *named;
}

std::string expert_wrapper(const family::CheckpointNames& names, const std::string& module,
                           const std::vector<std::string>& adapted) {
  const std::string parent(parent_of(module));
  const bool is_first = module.ends_with(names.experts.front()),
             has_outer = std::ranges::any_of(adapted, [&](const std::string&other) {
               return other != module && parent_of(other) == parent && names.is_experts(other);
             });
  return is_first && has_outer ? parent + std::string(kInner) : parent;
}

bool names_parameter(const std::vector<std::string>& parameters, const std::string& name) {
  return std::ranges::any_of(parameters, [&](const std::string& parameter) {
    return name == parameter || name.ends_with("." + parameter);
  });
}

at::Tensor peft_expert_b(const at::Tensor& b, int64_t experts) {
  return b.unflatten(0, {experts, -1}).permute({1, 2, 0}).flatten(1).contiguous();
}

at::Tensor expert_b_of_peft(const at::Tensor& b, int64_t experts) {
  return b.unflatten(1, {-1, experts}).permute({2, 0, 1}).flatten(0, 1).contiguous();
}

}  // namespace lft::hf
