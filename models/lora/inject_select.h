// The linear layers of a model, and those that patterns of a recipe select.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/lora/inject.h"

namespace lft::lora {

/// Every linear layer under `model`, in module order. The LM head is included (is_lm_head) but
/// never part of all-linear.
std::vector<LinearSite> linear_sites(torch::nn::Module& model);

/// The sites that `targets` ("scope:pattern") select. Pattern: all-linear; a last name component
/// (q_proj); a dotted suffix; or a glob with
/// * over the full name. Throws kUsage for an unknown scope, and for a pattern without a match in
/// its scope, showing the closest names and, where it would match in another tower, which.
std::vector<LinearSite> select_sites(const std::vector<LinearSite>& sites,
                                     const std::vector<std::string>& targets);

/// Ranks and alphas by pattern, as a recipe gives them. Of several patterns that match a layer the
/// first counts.
struct OwnPatterns {
  std::vector<std::pair<std::string, int64_t>> rank;
  std::vector<std::pair<std::string, double>> alpha;
};

/// The same options with `own` for those of `sites` that a pattern gives another rank or alpha. A
/// pattern is one of select_sites(), or its part after the scope for the sites of every scope.
/// kUsage for one that matches no site.
LoraOptions with_own(LoraOptions options, const std::vector<LinearSite>& sites,
                     const OwnPatterns& patterns);

}  // namespace lft::lora
