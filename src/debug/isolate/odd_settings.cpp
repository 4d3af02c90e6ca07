#include "src/debug/isolate/odd_settings.h"

#include <algorithm>
#include <cmath>

#include "models/lora/registry.h"
#include "src/base/text.h"
#include "src/recipe/diff.h"

namespace lft::debug {
namespace {

using recipe::Recipe;

constexpr double kMostEps = 1e-6, kUsualEps = 1e-8;
constexpr double kLeastScale = 1.0 / 16, kMostScale = 64, kUsualScale = 2;
constexpr double kMostDropout = 0.5, kLeastClip = 0.01;

/// For the adapters' product, with alpha = 1.
double unit_scale(const Recipe& recipe) {
  return lora::lora_scale(
      {.variant = recipe.lora.variant, .rank = recipe.lora.rank, .alpha = 1, .dropout = 0});
}

struct Kind {
  const char* name;
  bool of_adapters;
  bool (*odd)(const Recipe&);
  void (*fix)(Recipe&);
};

const Kind kKinds[] = {
    {"optim.eps", false, [](const Recipe& r) { return r.optim.eps > kMostEps; },
     [](Recipe& r) { r.optim.eps = kUsualEps; }},
    {"optim.clip_grad_norm", false,
     [](const Recipe& r) {
       return r.optim.clip_grad_norm > 0 && r.optim.clip_grad_norm < kLeastClip;
     },
     [](Recipe& r) { r.optim.clip_grad_norm = 0; }},
    {"lora.alpha", true,
     [](const Recipe& r) {
       const double scale = r.lora.alpha * unit_scale(r);
       return !r.lora.targets.empty() && !(scale >= kLeastScale && scale <= kMostScale);
     },
     [](Recipe& r) { r.lora.alpha = kUsualScale / unit_scale(r); }},
    {"lora.dropout", true,
     [](const Recipe& r) { return !r.lora.targets.empty() && r.lora.dropout > kMostDropout; },
     [](Recipe& r) { r.lora.dropout = 0; }},
};

}  // namespace

std::vector<std::string> settings_of(const Recipe& before, const Recipe& after) {
  std::vector<std::string> settings;
  for (const recipe::RecipeChange& change : recipe::changed_fields(before, after))
    settings.push_back(change.key + " " + change.before + " -> " + change.after);
  return settings;
}

std::vector<OddSetting> odd_settings(const Recipe& asked) {
  std::vector<OddSetting> odd;
  for (const Kind& kind : kKinds) {
    if (!kind.odd(asked)) continue;
    Recipe fixed = asked;
    kind.fix(fixed);
    odd.push_back({kind.name, join(settings_of(asked, fixed)), kind.of_adapters, kind.fix});
  }
  return odd;
}

bool is_cured(double start, double asked, double cured) {
  const double fall = start - cured;
  return fall > kSomeFall * start &&
         !(std::isfinite(asked) && fall <= kCuredFall * std::max(0.0, start - asked));
}

Recipe adapters_alone(Recipe recipe) {
  if (!recipe.lora.targets.empty()) recipe.full.clear();
  return recipe;
}

}  // namespace lft::debug
