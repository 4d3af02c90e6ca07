#include "models/lora/inject_select.h"

#include <algorithm>
#include <set>

#include "kernels/common/error.h"

namespace lft::lora {
namespace {

const std::vector<std::string> kScopes = {"llm", "projector", "vision"};

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }
bool is_lm_head(const std::string& name) { return last_part(name) == "lm_head"; }

/// Glob with * for any run of characters, dots included. Linear in text times stars.
bool glob(const std::string& pattern, const std::string& text) {
  size_t p = 0, t = 0, star = std::string::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches(const std::string& pattern, const std::string& name) {
  if (pattern == "all-linear") return !is_lm_head(name);
  if (pattern.find('*') != std::string::npos) return glob(pattern, name);
  return name == pattern || name.ends_with("." + pattern);
}

/// Whether a target selects the layer: experts only if it names them, since PEFT's target_modules
/// are linear layers, and target_parameters are experts.
bool selects(const std::string& pattern, const LinearSite& site) {
  if (site.layer->experts > 0 && pattern.find("experts") == std::string::npos) return false;
  return matches(pattern, site.name);
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Up to five names of the scope (empty: of any) most similar to the pattern: full names if it has
/// dots or stars, last components otherwise.
std::vector<std::string> closest(const std::vector<LinearSite>& sites, const std::string& scope,
                                 const std::string& pattern) {
  const bool whole = pattern.find_first_of(".*") != std::string::npos;
  std::set<std::string> names;
  for (const LinearSite& site : sites) {
    if (scope.empty() || site.scope == scope)
      names.insert(whole                     ? site.name
                   : site.layer->experts > 0 ? "experts." + last_part(site.name)
                                             : last_part(site.name));
  }
  std::vector<std::pair<size_t, std::string>> ranked;
  const std::string wanted = pattern.substr(0, 200);
  for (const std::string& name : names) ranked.emplace_back(edit_distance(wanted, name), name);
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> result;
  for (size_t i = 0; i < std::min<size_t>(5, ranked.size()); ++i)
    result.push_back(ranked[i].second);
  return result;
}

[[noreturn]] void fail_without_match(const std::vector<LinearSite>& sites,
                                     const std::string& target, const std::string& scope,
                                     const std::string& pattern) {
  std::string elsewhere;
  for (const std::string& other : kScopes) {
    const auto count = std::count_if(sites.begin(), sites.end(), [&](const LinearSite& site) {
      return site.scope == other && selects(pattern, site);
    });
    if (count > 0)
      elsewhere += (elsewhere.empty() ? "it would match in " : ", ") + other + " (" +
                   std::to_string(count) + " layers)";
  }
  const std::vector<std::string> names = closest(sites, scope, pattern);
  throw Error(ErrorKind::kUsage,
              {.what = "no linear layer of " + scope + " matches " + pattern,
               .where = "lora.targets",
               .found = target,
               .expected = names.empty() ? "" : "the closest in " + scope + ": " + join(names),
               .next = elsewhere});
}

/// A parsed target. The scope is empty if the target has none.
struct Target {
  std::string scope, pattern;
  bool takes(const LinearSite& site) const {
    return (scope.empty() || site.scope == scope) && matches(pattern, site.name);
  }
};

/// Parses "llm:q_proj", or "q_proj" for every scope; kUsage if no site matches.
Target own_target(const std::vector<LinearSite>& sites, const std::string& text,
                  const std::string& where) {
  const size_t colon = text.find(':');
  Target target;
  if (colon != std::string::npos) target.scope = text.substr(0, colon);
  target.pattern = colon == std::string::npos ? text : text.substr(colon + 1);
  if (std::ranges::any_of(sites, [&](const LinearSite& site) { return target.takes(site); }))
    return target;
  throw Error(ErrorKind::kUsage,
              {.what = "no layer with an adapter matches a pattern",
               .where = where,
               .found = text,
               .expected = "a name, the end of one or a glob with *, with or without a scope (" +
                           join(kScopes) +
                           "); the closest: " + join(closest(sites, target.scope, target.pattern)),
               .next = {}});
}

/// Calls set(site, value) for the first pattern of each site.
template <class Value, class Set>
void apply_patterns(const std::vector<LinearSite>& sites,
                    const std::vector<std::pair<std::string, Value>>& patterns,
                    const std::string& where, const Set& set) {
  std::set<std::string> done;
  for (const auto& [text, value] : patterns) {
    const Target target = own_target(sites, text, where);
    for (const LinearSite& site : sites) {
      if (target.takes(site) && done.insert(site.name).second) set(site.name, value);
    }
  }
}

}  // namespace

LoraOptions with_own(LoraOptions options, const std::vector<LinearSite>& sites,
                     const OwnPatterns& patterns) {
  const auto own = [&](const std::string& site) -> LoraOptions::Own& {
    return options.own.try_emplace(site, LoraOptions::Own{options.rank, options.alpha})
        .first->second;
  };
  apply_patterns(sites, patterns.rank, "lora.rank_pattern",
                 [&](const std::string& site, int64_t rank) { own(site).rank = rank; });
  apply_patterns(sites, patterns.alpha, "lora.alpha_pattern",
                 [&](const std::string& site, double alpha) { own(site).alpha = alpha; });
  std::erase_if(options.own, [&](const auto& item) {
    return item.second == LoraOptions::Own{options.rank, options.alpha};
  });
  return options;
}

std::vector<LinearSite> linear_sites(torch::nn::Module& model) {
  std::vector<LinearSite> sites;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto layer = std::dynamic_pointer_cast<layers::LinearImpl>(item.value()))
      sites.push_back({item.key(), scope_of(item.key()), layers::Linear(layer)});
  }
  return sites;
}

std::vector<LinearSite> select_sites(const std::vector<LinearSite>& sites,
                                     const std::vector<std::string>& targets) {
  std::vector<bool> chosen(sites.size(), false);
  for (const std::string& target : targets) {
    const size_t colon = target.find(':');
    const std::string scope = target.substr(0, colon),
                      pattern = colon == std::string::npos ? "" : target.substr(colon + 1);
    if (std::find(kScopes.begin(), kScopes.end(), scope) == kScopes.end() || pattern.empty()) {
      throw Error(ErrorKind::kUsage,
                  {.what = "a target is scope:pattern with a known scope",
                   .where = "lora.targets",
                   .found = target,
                   .expected = "a scope of " + join(kScopes) + ", for example llm:all-linear",
                   .next = {}});
    }
    bool any = false;
    for (size_t i = 0; i < sites.size(); ++i) {
      if (sites[i].scope != scope || !selects(pattern, sites[i])) continue;
      chosen[i] = any = true;
    }
    if (!any) fail_without_match(sites, target, scope, pattern);
  }
  std::vector<LinearSite> result;
  for (size_t i = 0; i < sites.size(); ++i) {
    if (chosen[i]) result.push_back(sites[i]);
  }
  return result;
}

}  // namespace lft::lora
