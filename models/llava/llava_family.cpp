#include "models/llava/llava_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/llava/anyres_images.h"
#include "models/llava/llava_images.h"

namespace lft::llava {

const LlavaFamily& llava_family(Kind kind) {
  static const LlavaFamily llava(Kind::kLlava), next(Kind::kNext), one_vision(Kind::kOneVision);
  return kind == Kind::kNext ? next : kind == Kind::kOneVision ? one_vision : llava;
}

std::string LlavaFamily::name() const {
  return kind_ == Kind::kNext        ? "LLaVA-NeXT"
         : kind_ == Kind::kOneVision ? "LLaVA-OneVision"
                                     : "LLaVA";
}

family::ModelConfig LlavaFamily::parse(const nlohmann::json& config,
                                       const std::string& where) const {
  return parse_llava(config, where, kind_);
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
  if (own.siglip) out << "\nsiglip";
  if (own.kind != Kind::kLlava) out << '\n' << name() << ' ' << own.most_tiles;
  for (const image::Size& canvas : own.canvases) out << ' ' << canvas.height << 'x' << canvas.width;
  return out.str();
}

std::string LlavaFamily::transformers_class(const family::ModelConfig&) const {
  return kind_ == Kind::kNext        ? "LlavaNextForConditionalGeneration"
         : kind_ == Kind::kOneVision ? "LlavaOnevisionForConditionalGeneration"
                                     : "LlavaForConditionalGeneration";
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

/// The chat templates of the published checkpoints, by their decoders; LLaVA-1.5's and Vicuna's is
/// the one that they were trained with. LLaVA-1.5 was trained with padded images, though its
/// processor crops them; one whose processor stretches them was trained so.
family::FamilyDefaults LlavaFamily::defaults(const family::ModelConfig& config,
                                             const nlohmann::json& processor) const {
  const std::string& text = config.text.model_type;
  return {.template_name = text == "qwen2"     ? "qwen3-vl"
                           : text == "mistral" ? "mistral"
                                               : "llava-v1",
          .image_fit = kind_ == Kind::kLlava && !stretches(processor) ? "pad" : "native"};
}

std::shared_ptr<const family::ImageProcessor> LlavaFamily::image_processor(
    const family::ModelConfig& config, const family::ProcessorFile& file,
    const family::ImageRules& rules, std::vector<std::string>* notices) const {
  auto processor = kind_ == Kind::kLlava ? square_processor(fields(config), file, rules)
                                         : anyres_processor(fields(config), file, rules);
  if (!file.json.contains("image_mean") || !file.json.contains("image_std"))
    notices->push_back(file.folder + " gives no image_mean and image_std: " +
                       (is_siglip(file.json) ? "SigLIP's" : "CLIP's") + " are used");
  return processor;
}

// transformers' LlavaImageProcessor pads where its file says so; CLIPImageProcessor always crops.
nlohmann::json LlavaFamily::processor_fitted(const family::ModelConfig& config,
                                             const nlohmann::json& file,
                                             const family::ImageRules& rules) const {
  nlohmann::json fitted = file;
  if (kind_ != Kind::kLlava) return fitted;
  if (rules.fit == "crop" && fitted.value("do_pad", nlohmann::json()) == true)
    fitted["do_pad"] = false;
  if (rules.fit != "pad") return fitted;
  const int64_t side = fields(config).vision.image_size;
  fitted["image_processor_type"] = "LlavaImageProcessor";
  fitted["do_pad"] = true;
  fitted["size"] = {{"shortest_edge", side}};
  fitted["crop_size"] = {{"height", side}, {"width", side}};
  const Colours silent = silent_colours(file);
  if (!fitted.contains("image_mean")) fitted["image_mean"] = silent.mean;
  if (!fitted.contains("image_std")) fitted["image_std"] = silent.std;
  return fitted;
}

std::string LlavaFamily::unserved(family::Server server, const family::ModelConfig& config) const {
  if (server != family::Server::kLlamaCpp || fields(config).siglip)
    return Family::unserved(server, config);
  return "llama.cpp's CLIP towers read the class position last (its pull request 25844), and "
         "answer "
         "otherwise";
}

family::Model LlavaFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                 at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<LlavaImpl>(config, dtype, device, storage);
}

}  // namespace lft::llava
