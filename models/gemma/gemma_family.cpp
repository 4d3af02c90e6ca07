#include "models/gemma/gemma_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/family/model.h"
#include "models/gemma/gemma.h"
#include "models/gemma/gemma_images.h"
#include "models/gemma/gemma_names.h"
#include "models/siglip/siglip_names.h"

namespace lft::gemma {

// The decoder's masks depend on where a batch has its images and sequences.
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

family::ModelLayout GemmaFamily::layout(const family::ModelConfig& config) const {
  const GemmaFields& own = fields(config);
  family::ModelLayout layout;
  layout.vision = siglip::tower_of(own.vision, kTowerNames, own.vision.layers);
  layout.projector = {{{.name = "multi_modal_projector.mm_input_projection_weight",
                        .in = own.vision.hidden,
                        .out = config.text.hidden,
                        .bare = true}}};
  layout.tensors = list_tensors(config, layout.projector);
  if (own.vision_head) layout.unused_modules = {"vision_tower.vision_model.head"};
  return layout;
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
