#include "src/report/figure_text.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"

namespace lft::report {

std::string figures_text(const std::vector<std::pair<std::string, double>>& figures) {
  std::string text;
  for (const auto& [name, value] : figures) {
    if (name.starts_with("rewards_") || name.starts_with("logps_")) continue;
    std::string words = name.starts_with("reward_") ? name.substr(7) : name;
    std::ranges::replace(words, '_', ' ');
    text += ", " + words + " " + format_number(value, "%.4f");
  }
  return text;
}

bool is_zero_reward(double reward) { return std::abs(reward) <= 1e-5; }

bool at_reference(const std::vector<std::pair<std::string, double>>& figures) {
  bool any = false;
  for (const auto& [name, value] : figures) {
    if (!name.starts_with("rewards_")) continue;
    if (!is_zero_reward(value)) return false;
    any = true;
  }
  return any;
}

}  // namespace lft::report
