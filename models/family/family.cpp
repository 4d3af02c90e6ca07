#include "models/family/family.h"

#include <nlohmann/json.hpp>

#include "models/family/layout.h"
#include "models/family/model.h"

namespace lft::family {

nlohmann::json Family::processor_fitted(const ModelConfig& /*config*/, const nlohmann::json& file,
                                        const ImageRules& /*rules*/) const {
  return file;
}

ModelLayout Family::layout(const ModelConfig& config) const {
  return read_layout(*build(config, at::kFloat, at::kMeta, ops::BaseStorage::kDense));
}

ImagePlan reference_image_plan(const ModelConfig& config) {
  const nlohmann::json nothing = nlohmann::json::object();
  std::vector<std::string> notices;
  const ImageRules rules{.fit = config.family->defaults(config, nothing).image_fit};
  return config.family
      ->image_processor(config, {.json = nothing, .where = "", .folder = ""}, rules, &notices)
      ->plan({.width = 640, .height = 480});
}

}  // namespace lft::family
