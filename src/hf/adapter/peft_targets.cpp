#include "src/hf/adapter/peft_targets.h"

#include <algorithm>
#include <cctype>

#include "kernels/common/error.h"

namespace lft::hf {
namespace {

constexpr const char* kAllLinear = "all-linear";  // every layer except the LM head

std::optional<text::Regex> full_match(const PeftNames& names, const std::string& where) {
  if (names.expression.empty() || names.expression == kAllLinear) return std::nullopt;
  return text::Regex("^(?:" + names.expression + ")$", where);
}

bool names_it(const PeftNames& names, const std::optional<text::Regex>& expression,
              const std::string& module) {
  if (names.expression == kAllLinear) return module != "lm_head" && !module.ends_with(".lm_head");
  if (expression) return !expression->find_all(module).empty();
  return std::ranges::any_of(names.names, [&](const std::string& name) {
    return module == name || module.ends_with("." + name);
  });
}

/// Whether `module` is, or is inside, a module whose name ends with `saved`.
bool is_inside(const std::string& module, const std::string& saved) {
  return ("." + module + ".").find("." + saved + ".") != std::string::npos;
}

}  // namespace

std::optional<PeftTargets> PeftTargets::of(const PeftTargetRule& rule, const std::string& where) {
  try {
    return PeftTargets(rule, where);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return std::nullopt;
  }
}

PeftTargets::PeftTargets(const PeftTargetRule& rule, const std::string& where)
    : rule_(rule),
      targets_(full_match(rule.targets, where + ": target_modules")),
      excluded_(full_match(rule.excluded, where + ": exclude_modules")),
      layer_lists_(rule.layer_lists, where + ": layers_pattern") {}

bool PeftTargets::takes(const std::string& module) const {
  if (names_it(rule_.excluded, excluded_, module)) return false;
  const auto contains = [&](const std::string& saved) { return is_inside(module, saved); };
  if (std::ranges::any_of(rule_.saved, contains)) return false;
  if (!names_it(rule_.targets, targets_, module)) return false;
  const bool named = std::ranges::find(rule_.targets.names, module) != rule_.targets.names.end();
  return rule_.layers.empty() || !rule_.targets.expression.empty() || named ||
         in_chosen_layer(module);
}

/// The layer is the first number in the name, after one of the names in layer_lists.
bool PeftTargets::in_chosen_layer(const std::string& module) const {
  const auto counts = [&](const std::string& before) {
    return rule_.layer_lists.empty() ? before.find('.') != std::string::npos
                                     : layer_lists_.first_of({before}).has_value();
  };
  for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1)) {
    const size_t end = module.find('.', dot + 1);
    if (end == std::string::npos) break;
    const std::string part = module.substr(dot + 1, end - dot - 1);
    const bool number = std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    if (part.empty() || part.size() > 9 || !number || !counts(module.substr(0, dot))) continue;
    return std::ranges::find(rule_.layers, std::stoll(part)) != rule_.layers.end();
  }
  return false;
}

}  // namespace lft::hf
