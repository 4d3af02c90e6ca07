#include "models/llava/llava_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/llava/llava_images.h"

namespace lft::llava {

const LlavaFamily& llava_family() {
  static const LlavaFamily family;
  return family;
}

family::ModelConfig LlavaFamily::parse(const nlohmann::json& config,
                                       const std::string& where) const {
  return parse_llava(config, where);
}

std::string LlavaFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const LlavaFields& own = fields(config);
  const clip::ClipConfig& v = own.vision;
  out << "llava 1\n"
      << family::fingerprint_of_decoder(config.text) << '\n'
      << v.hidden << ' ' << v.intermediate << ' ' << v.layers << ' ' << v.heads << ' '
      << v.image_size << ' ' << v.patch_size << ' ' << v.channels << ' ' << v.layer_norm_eps << ' '
      << v.activation << '\n'
      << config.image_token << ' ' << own.select_full << own.projector_bias << ' '
      << own.projector_activation;
  for (const int64_t layer : own.vision_feature_layers) out << ' ' << layer;
  return out.str();
}

std::string LlavaFamily::transformers_class(const family::ModelConfig&) const {
  return "LlavaForConditionalGeneration";
}

family::Tower LlavaFamily::vision(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  const std::string root = "vision_tower.vision_model.";
  return {.label = "vision tower",
          .layers = root + "encoder.layers.",
          .count = own.used_layers(),
          .width = own.vision.hidden,
          .inner = own.vision.intermediate,
          .heads = own.vision.heads,
          .kv_heads = own.vision.heads,
          .head_dim = own.vision.hidden / own.vision.heads,
          .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          .o = "self_attn.out_proj",
          .mlp_in = {"mlp.fc1"},
          .mlp_out = "mlp.fc2",
          .norms = {"layer_norm1", "layer_norm2"},
          .tables = {root + "embeddings.patch_embedding.weight",
                     root + "embeddings.position_embedding.weight"}};
}

family::ProjectorShape LlavaFamily::projector(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  const int64_t in = own.vision.hidden * static_cast<int64_t>(own.vision_feature_layers.size()),
                hidden = config.text.hidden;
  return {{{.name = "multi_modal_projector.linear_1", .in = in, .out = hidden},
           {.name = "multi_modal_projector.linear_2", .in = hidden, .out = hidden}}};
}

family::FamilyDefaults LlavaFamily::defaults(const family::ModelConfig&) const {
  return {.template_name = "llava-v1", .image_fit = "pad"};
}

std::shared_ptr<const family::ImageProcessor> LlavaFamily::image_processor(
    const family::ModelConfig& config, const family::ProcessorFile& file,
    const family::ImageRules& rules, std::vector<std::string>* notices) const {
  auto processor = square_processor(fields(config), file, rules);
  if (!file.json.contains("image_mean") || !file.json.contains("image_std"))
    notices->push_back(file.folder + " gives no image_mean and image_std: CLIP's are used");
  return processor;
}

family::Model LlavaFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                 at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<LlavaImpl>(config, dtype, device, storage);
}

}  // namespace lft::llava
