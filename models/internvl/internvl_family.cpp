#include "models/internvl/internvl_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/internvl/internvl.h"
#include "models/internvl/internvl_images.h"
#include "models/internvl/internvl_names.h"

namespace lft::internvl {

InternVlFamily::InternVlFamily(Layout layout)
    : Family({.name = "InternVL",
              .names = checkpoint_names(layout),
              .processor_mark = kImageMark,
              .placeholder = kImageMark,
              .writes_prompts = layout == Layout::kOriginal,
              .why_not_graphable = "images of InternVL differ in shape"}),
      layout_(layout) {}

const InternVlFamily& internvl_family(Layout layout) {
  static const InternVlFamily transformers(Layout::kTransformers), original(Layout::kOriginal);
  return layout == Layout::kOriginal ? original : transformers;
}

family::ModelConfig InternVlFamily::parse(const nlohmann::json& config,
                                          const std::string& where) const {
  return parse_internvl(layout_, config, where);
}

std::string InternVlFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const InternVlFields& own = fields(config);
  const clip::ClipConfig& v = own.vision;
  out << config.model_type << " 1\n"
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
  return {.template_name = layout_ == Layout::kOriginal ? "internvl2_5" : "internvl",
          .image_fit = "native"};
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
