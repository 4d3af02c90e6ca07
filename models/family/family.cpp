#include "models/family/family.h"

#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "models/family/gguf_form.h"

namespace lft::family {

nlohmann::json Family::processor_fitted(const ModelConfig& /*config*/, const nlohmann::json& file,
                                        const ImageRules& /*rules*/) const {
  return file;
}

std::string Family::unserved(Server server, const ModelConfig& /*config*/) const {
  return server == Server::kSglang ? "SGLang 0.5.23 loads no " + name() + " in Hugging Face layout"
                                   : "lft writes no GGUF of a " + name();
}

GgufForm Family::gguf(const ModelConfig& /*config*/) const {
  throw Error(ErrorKind::kInternal, "no GGUF form of " + name());
}

ImagePlan ordinary_image(const ModelConfig& config) {
  const nlohmann::json nothing = nlohmann::json::object();
  std::vector<std::string> notices;
  const ImageRules rules{.fit = config.family->defaults(config, nothing).image_fit};
  return config.family
      ->image_processor(config, {.json = nothing, .where = "", .folder = ""}, rules, &notices)
      ->plan({.width = 640, .height = 480});
}

}  // namespace lft::family
