// The linear layers of a model, and those that patterns of a recipe select.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/lora/inject.h"

namespace lft::lora {

/// All linear layers of `model`, in module order. The LM head is included (is_lm_head) but
/// all-linear never selects it.
std::vector<LinearSite> linear_sites(torch::nn::Module& model);

/// The sites that `targets` ("scope:pattern") select. A pattern is all-linear; the last component
/// of a name (q_proj); a dotted suffix; or a glob with * over the full name. Throws kUsage for an
/// unknown scope, and for a pattern without a match in its scope; the error shows the closest names
/// and other scopes that match.
std::vector<LinearSite> select_sites(const std::vector<LinearSite>& sites,
                                     const std::vector<std::string>& targets);

/// Ranks and alphas by pattern, as in a recipe. The first pattern that matches a layer is used.
struct OwnPatterns {
  std::vector<std::pair<std::string, int64_t>> rank;
  std::vector<std::pair<std::string, double>> alpha;
};

/// The same options with `own` for the sites whose rank or alpha a pattern changes. A pattern is
/// one of select_sites(), or the part after the scope, for all scopes. Throws kUsage for one that
/// matches no site.
LoraOptions with_own(LoraOptions options, const std::vector<LinearSite>& sites,
                     const OwnPatterns& patterns);

}  // namespace lft::lora
