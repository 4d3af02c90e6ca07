#include "models/lora/registry.h"

#include "kernels/common/error.h"
#include "models/lora/dora.h"
#include "models/lora/lora.h"

namespace lft::lora {
namespace {

struct Variant {
  const char* name;
  std::shared_ptr<layers::LinearAdapter> (*make)(const layers::LinearImpl& layer,
                                                 const LoraOptions& options);
};
std::shared_ptr<layers::LinearAdapter> make_lora(const layers::LinearImpl& layer,
                                                 const LoraOptions& options) {
  return std::make_shared<LoraAdapter>(layer, options, lora_scale(options));
}
std::shared_ptr<layers::LinearAdapter> make_dora(const layers::LinearImpl& layer,
                                                 const LoraOptions& options) {
  return std::make_shared<DoraAdapter>(layer, options, lora_scale(options));
}
constexpr Variant kVariants[] = {
    {"lora", make_lora},
    {"rslora", make_lora},
    {"dora", make_dora},
};

}  // namespace

std::vector<std::string> adapter_variants() {
  std::vector<std::string> names;
  for (const Variant& variant : kVariants) names.emplace_back(variant.name);
  return names;
}

std::shared_ptr<layers::LinearAdapter> make_adapter(const layers::LinearImpl& layer,
                                                    const LoraOptions& options) {
  std::string known;
  for (const Variant& variant : kVariants) {
    if (options.variant == variant.name) return variant.make(layer, options);
    known += (known.empty() ? "" : ", ") + std::string(variant.name);
  }
  throw Error(ErrorKind::kUsage, {.what = "unknown adapter variant",
                                  .where = "lora.variant",
                                  .found = options.variant,
                                  .expected = known,
                                  .next = {}});
}

}  // namespace lft::lora
