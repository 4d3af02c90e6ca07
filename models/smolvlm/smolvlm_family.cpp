#include "models/smolvlm/smolvlm_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/smolvlm/smolvlm_images.h"

namespace lft::smolvlm {

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

std::string SmolVlmFamily::transformers_class(const family::ModelConfig& config) const {
  return config.model_type == "idefics3" ? "Idefics3ForConditionalGeneration"
                                         : "SmolVLMForConditionalGeneration";
}

// SmolVLMProcessor writes numbers as words.
std::string SmolVlmFamily::more_packages(const family::ModelConfig& config) const {
  return config.model_type == "idefics3" ? "" : " num2words";
}

family::Tower SmolVlmFamily::vision(const family::ModelConfig& config) const {
  const clip::ClipConfig& v = fields(config).vision;
  const std::string root = "vision_tower.";
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

family::ProjectorShape SmolVlmFamily::projector(const family::ModelConfig& config) const {
  const SmolVlmFields& own = fields(config);
  return {{{.name = "multi_modal_projector.modality_projection.proj",
            .in = own.vision.hidden * own.scale * own.scale,
            .out = config.text.hidden}}};
}

family::FamilyDefaults SmolVlmFamily::defaults(const family::ModelConfig&,
                                               const nlohmann::json&) const {
  return {.template_name = "smolvlm", .image_fit = "native"};
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
