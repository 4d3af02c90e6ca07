// Settings with unusual values: each is compared with a usual value, with all other settings
// unchanged. Used by overfit and bare.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::debug {

/// "optim.eps 1 -> 1e-08", one text for each field that differs.
std::vector<std::string> settings_of(const recipe::Recipe& before, const recipe::Recipe& after);

/// A trial decides whether the setting is a cause.
struct OddSetting {
  std::string name;          // "optim.eps"
  std::string change;        // "optim.eps 1 -> 1e-08", from the recipe's to the usual value
  bool of_adapters = false;  // other trained parts would hide it
  std::function<void(recipe::Recipe&)> fix;
};

/// optim.eps above 1e-6, a scale of the adapters' product outside [1/16, 64], lora.dropout above
/// 0.5, optim.clip_grad_norm below 0.01.
std::vector<OddSetting> odd_settings(const recipe::Recipe& asked);

constexpr double kSomeFall = 0.02;  // of the previous loss; less does not count as a fall
constexpr double kMostLr = 10;      // upper limit in a recipe
/// With the usual value the loss must fall this many times more before a setting is reported.
constexpr double kCuredFall = 3;

/// Whether the loss falls much more from `start` to `cured` than to `asked`.
bool is_cured(double start, double asked, double cured);

/// `recipe` with only its adapters trained; unchanged if it has none.
recipe::Recipe adapters_alone(recipe::Recipe recipe);

}  // namespace lft::debug
