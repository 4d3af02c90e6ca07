#include "models/smolvlm/smolvlm_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/smolvlm/smolvlm.h"
#include "models/smolvlm/smolvlm_images.h"
#include "models/smolvlm/smolvlm_names.h"

namespace lft::smolvlm {

SmolVlmFamily::SmolVlmFamily()
    : Family({.name = "SmolVLM",
              .names = checkpoint_names(),
              .why_not_graphable = "images of SmolVLM differ in shape"}) {}

const SmolVlmFamily& smolvlm_family() {
  static const SmolVlmFamily family;
  return family;
}

family::ModelConfig SmolVlmFamily::parse(const nlohmann::json& config,
                                         const std::string& where) const {
  return parse_smolvlm(config, where);
}

std::string SmolVlmFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const SmolVlmFields& own = fields(config);
  const clip::ClipConfig& v = own.vision;
  out << "smolvlm 1\n"
      << family::fingerprint_of_decoder(config.text) << '\n'
      << v.hidden << ' ' << v.intermediate << ' ' << v.layers << ' ' << v.heads << ' '
      << v.image_size << ' ' << v.patch_size << ' ' << v.channels << ' ' << v.layer_norm_eps << ' '
      << v.activation << '\n'
      << config.image_token << ' ' << own.scale;
  return out.str();
}

family::VisionFacts SmolVlmFamily::vision(const family::ModelConfig& config) const {
  const clip::ClipConfig& v = fields(config).vision;
  return {.blocks = {.label = "vision tower",
                     .layers = "vision_tower.encoder.layers.",
                     .count = v.layers,
                     .head_dim = v.hidden / v.heads}};
}

family::FamilyDefaults SmolVlmFamily::defaults(const family::ModelConfig&,
                                               const nlohmann::json&) const {
  return {.template_name = "smolvlm", .image_fit = "native"};
}

nlohmann::json SmolVlmFamily::processor_fitted(const family::ModelConfig&,
                                               const nlohmann::json& file,
                                               const family::ImageRules& rules) const {
  return with_longest_edge(file, rules);
}

std::shared_ptr<const family::ImageProcessor> SmolVlmFamily::image_processor(
    const family::ModelConfig& config, const family::ProcessorFile& file,
    const family::ImageRules& rules, std::vector<std::string>*) const {
  return tile_processor(fields(config), file, rules);
}

family::Model SmolVlmFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                   at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<SmolVlmImpl>(config, dtype, device, storage);
}

}  // namespace lft::smolvlm
