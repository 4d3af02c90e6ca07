#include "models/gemma/gemma_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/family/model.h"
#include "models/gemma/gemma.h"
#include "models/gemma/gemma_images.h"
#include "models/gemma/gemma_names.h"

namespace lft::gemma {

// The decoder's masks depend on the positions of images and sequences in a batch.
GemmaFamily::GemmaFamily()
    : Family(
          {.name = "Gemma 3",
           .names = checkpoint_names(),
           .processor_mark = "<start_of_image>",
           .placeholder = "<start_of_image>",
           .why_not_graphable = "images of Gemma 3 see themselves whole, by masks of each pass"}) {}

const GemmaFamily& gemma_family() {
  static const GemmaFamily family;
  return family;
}

family::ModelConfig GemmaFamily::parse(const nlohmann::json& config,
                                       const std::string& where) const {
  return parse_gemma(config, where);
}

std::string GemmaFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const GemmaFields& own = fields(config);
  const clip::ClipConfig& v = own.vision;
  out << "gemma 1\n"
      << family::fingerprint_of_decoder(config.text) << '\n'
      << v.hidden << ' ' << v.intermediate << ' ' << v.layers << ' ' << v.heads << ' '
      << v.image_size << ' ' << v.patch_size << ' ' << v.channels << ' ' << v.layer_norm_eps << ' '
      << v.activation << '\n'
      << config.image_token << ' ' << own.side;
  return out.str();
}

family::VisionFacts GemmaFamily::vision(const family::ModelConfig& config) const {
  const GemmaFields& own = fields(config);
  const std::string root = "vision_tower.vision_model.";
  family::VisionFacts facts{.blocks = {.label = "vision tower",
                                       .layers = root + "encoder.layers.",
                                       .count = own.vision.layers,
                                       .head_dim = own.vision.hidden / own.vision.heads}};
  if (own.vision_head) facts.unused_modules = {root + "head"};
  return facts;
}

family::FamilyDefaults GemmaFamily::defaults(const family::ModelConfig&,
                                             const nlohmann::json&) const {
  return {.template_name = "gemma", .image_fit = "native"};
}

std::shared_ptr<const family::ImageProcessor> GemmaFamily::image_processor(
    const family::ModelConfig& config, const family::ProcessorFile& file,
    const family::ImageRules& rules, std::vector<std::string>*) const {
  return stretching_processor(fields(config), file, rules);
}

family::Model GemmaFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                 at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<GemmaImpl>(config, dtype, device, storage);
}

}  // namespace lft::gemma
