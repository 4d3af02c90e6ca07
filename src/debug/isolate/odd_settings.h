// Settings far from where runs learn: each is tried against the value that would cure it, with all
// else as asked. Shared by overfit and bare.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::debug {

/// "optim.eps 1 -> 1e-08", a text for each field that differs.
std::vector<std::string> settings_of(const recipe::Recipe& before, const recipe::Recipe& after);

/// Not guilty of anything by itself: a trial decides.
struct OddSetting {
  std::string name;          // "optim.eps"
  std::string change;        // "optim.eps 1 -> 1e-08", from what was asked to what cures
  bool of_adapters = false;  // what else is trained would hide it
  std::function<void(recipe::Recipe&)> mend;
};

/// optim.eps above 1e-6, a scale of the adapters' product outside [1/16, 64], lora.dropout above
/// 0.5, optim.clip_grad_norm below 0.01.
std::vector<OddSetting> odd_settings(const recipe::Recipe& asked);

constexpr double kSomeFall = 0.02;  // of the loss before: less is none
constexpr double kMostLr = 10;      // as a recipe allows
/// A trial with the cure has to fall by so many times as much before a setting is accused.
constexpr double kCuredFall = 3;

/// Whether `cured` is a fall of the loss from `start` that `asked` is nowhere near.
bool is_cured(double start, double asked, double cured);

/// `recipe` with nothing trained but its adapters; as it is where it has none.
recipe::Recipe adapters_alone(recipe::Recipe recipe);

}  // namespace lft::debug
