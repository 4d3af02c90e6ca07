#include "src/train/inputs/init_adapter.h"

#include <algorithm>
#include <set>

#include "kernels/common/error.h"
#include "models/lora/inject_select.h"
#include "models/lora/registry.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/io/json.h"
#include "src/train/inputs/model_shapes.h"

namespace lft::train {
namespace {

[[noreturn]] void reject_adapter(const hf::AdapterDir& dir, const std::string& what,
                                 const std::string& found, const std::string& expected) {
  refuse(ErrorKind::kInput, what, dir.path, found, expected,
         "make the recipe agree with the adapter, or choose another lora.init_from");
}

/// Requires that variant, rank and alpha of every layer are equal, in any notation.
void check_settings(const hf::AdapterDir& dir, const lora::LoraOptions& asked,
                    const std::set<std::string>& layers) {
  const auto describe = [](const lora::LoraOptions& lora) {
    return "variant " + lora.variant + ", rank " + std::to_string(lora.rank) + ", alpha " +
           io::Json(lora.alpha).dump();
  };
  for (const std::string& layer : layers) {
    const std::string found = describe(dir.lora.of(layer)), expected = describe(asked.of(layer));
    if (found == expected) continue;
    const std::string at = dir.lora.own.empty() && asked.own.empty() ? "" : " at " + layer;
    reject_adapter(dir, "the adapter was made with other LoRA settings", found + at, expected);
  }
}

}  // namespace

lora::LoraOptions lora_options(const recipe::Recipe& recipe,
                               const std::vector<lora::LinearSite>& sites) {
  return lora::with_own({.variant = recipe.lora.variant,
                         .rank = recipe.lora.rank,
                         .alpha = recipe.lora.alpha,
                         .dropout = recipe.lora.dropout},
                        sites,
                        {.rank = recipe.lora.rank_pattern, .alpha = recipe.lora.alpha_pattern});
}

/// Requires exactly the recipe's layers, rank and scale; fully trained tensors must be trained in
/// full again and are the only content of a parts folder.
void check_init_adapter(const hf::AdapterDir& dir, const recipe::Recipe& recipe,
                        const std::vector<lora::LinearSite>& sites) {
  if (!dir.parts && lora::find_variant(recipe.lora.variant).changes_weight) {
    const lora::LoraOptions saved = lora::saved_options(lora_options(recipe, sites));
    refuse(ErrorKind::kUsage,
           "lora.variant: " + recipe.lora.variant + " begins from the base's own weights",
           "lora.init_from", dir.path, "no adapter to start from",
           "to train on what such a run saved, set lora.variant: " + saved.variant +
               " with its rank and alpha, or continue from a checkpoint with --resume");
  }
  std::set<std::string> wanted, present(dir.lora_modules.begin(), dir.lora_modules.end());
  for (const lora::LinearSite& site : sites) wanted.insert(site.name);
  std::vector<std::string> missing, extra;
  std::set_difference(wanted.begin(), wanted.end(), present.begin(), present.end(),
                      std::back_inserter(missing));
  std::set_difference(present.begin(), present.end(), wanted.begin(), wanted.end(),
                      std::back_inserter(extra));
  if (!dir.parts && (!missing.empty() || !extra.empty())) {
    reject_adapter(dir, "the adapter's layers are not those of lora.targets",
                   std::to_string(present.size()) + " layers" +
                       (extra.empty() ? "" : "; not in lora.targets: " + join(extra, ", ", 5)),
                   std::to_string(wanted.size()) + " layers" +
                       (missing.empty() ? "" : "; not in the adapter: " + join(missing, ", ", 5)));
  }
  if (!dir.parts) check_settings(dir, lora_options(recipe, sites), wanted);
  for (const std::string& tensor : dir.full_tensors) {
    if (trains_whole(recipe, tensor)) continue;
    reject_adapter(dir, "the adapter contains tensors trained whole that the recipe does not train",
                   tensor, "full: [" + lora::scope_of(tensor) + "]");
  }
}

}  // namespace lft::train
