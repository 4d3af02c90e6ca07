#include "models/internvl/internvl_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/internvl/internvl.h"
#include "models/internvl/internvl_images.h"
#include "models/internvl/internvl_names.h"

namespace lft::internvl {

InternVlFamily::InternVlFamily()
    : Family({.name = "InternVL",
              .names = checkpoint_names(),
              .processor_mark = kImageMark,
              .placeholder = kImageMark,
              .why_not_graphable = "images of InternVL differ in shape"}) {}

const InternVlFamily& internvl_family() {
  static const InternVlFamily family;
  return family;
}

family::ModelConfig InternVlFamily::parse(const nlohmann::json& config,
                                          const std::string& where) const {
  return parse_internvl(config, where);
}

std::string InternVlFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const InternVlFields& own = fields(config);
  const clip::ClipConfig& v = own.vision;
  out << "internvl 1\n"
      << family::fingerprint_of_decoder(config.text) << '\n'
      << v.hidden << ' ' << v.intermediate << ' ' << v.layers << ' ' << v.heads << ' '
      << v.image_size << ' ' << v.patch_size << ' ' << v.channels << ' ' << v.layer_norm_eps << ' '
      << v.activation << ' ' << own.qkv_bias << own.qk_norm << own.rms_norms << '\n'
      << config.image_token << ' ' << own.scale << ' ' << own.activation;
  return out.str();
}

family::VisionFacts InternVlFamily::vision(const family::ModelConfig& config) const {
  const clip::ClipConfig& v = fields(config).vision;
  return {.blocks = {.label = "vision tower",
                     .layers = "vision_tower.encoder.layer.",
                     .count = v.layers,
                     .head_dim = v.hidden / v.heads}};
}

family::FamilyDefaults InternVlFamily::defaults(const family::ModelConfig&,
                                                const nlohmann::json&) const {
  return {.template_name = "internvl", .image_fit = "native"};
}

nlohmann::json InternVlFamily::processor_fitted(const family::ModelConfig& config,
                                                const nlohmann::json& file,
                                                const family::ImageRules& rules) const {
  return with_most_tiles(fields(config), file, rules);
}

std::shared_ptr<const family::ImageProcessor> InternVlFamily::image_processor(
    const family::ModelConfig& config, const family::ProcessorFile& file,
    const family::ImageRules& rules, std::vector<std::string>*) const {
  return tile_processor(fields(config), file, rules);
}

family::Model InternVlFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                    at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<InternVlImpl>(config, dtype, device, storage);
}

}  // namespace lft::internvl
