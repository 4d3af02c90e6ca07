#include "models/gemma/gemma_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/gemma/gemma_images.h"

namespace lft::gemma {

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

std::string GemmaFamily::transformers_class(const family::ModelConfig&) const {
  return "Gemma3ForConditionalGeneration";
}

family::Tower GemmaFamily::vision(const family::ModelConfig& config) const {
  const clip::ClipConfig& v = fields(config).vision;
  const std::string root = "vision_tower.vision_model.";
  return {.label = "vision tower",
          .layers = root + "encoder.layers.",
          .count = v.layers,
          .width = v.hidden,
          .inner = v.intermediate,
          .heads = v.heads,
          .kv_heads = v.heads,
          .head_dim = v.hidden / v.heads,
          .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          .o = "self_attn.out_proj",
          .mlp_in = {"mlp.fc1"},
          .mlp_out = "mlp.fc2",
          .norms = {"layer_norm1", "layer_norm2"},
          .tables = {root + "embeddings.patch_embedding.weight",
                     root + "embeddings.position_embedding.weight"}};
}

family::ProjectorShape GemmaFamily::projector(const family::ModelConfig& config) const {
  return {{{.name = "multi_modal_projector.mm_input_projection_weight",
            .in = fields(config).vision.hidden,
            .out = config.text.hidden,
            .bare = true}}};
}

/// The decoder's masks are made of where a pass has its images and its sequences.
std::string GemmaFamily::unlike_passes() const {
  return "images of " + name() + " see themselves whole, by masks of each pass";
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
