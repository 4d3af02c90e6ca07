#include "models/llava/llava_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/llava/anyres_images.h"
#include "models/llava/llava.h"
#include "models/llava/llava_images.h"
#include "models/llava/llava_names.h"

namespace lft::llava {
namespace {

std::string name_of(Kind kind) {
  return kind == Kind::kNext        ? "LLaVA-NeXT"
         : kind == Kind::kOneVision ? "LLaVA-OneVision"
                                    : "LLaVA";
}

std::string unused_reason(const LlavaFields& own) {
  std::string layers;
  for (const int64_t layer : own.vision_feature_layers)
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
  return "no output of it is used: with vision_feature_layer " + layers + " of " +
         std::to_string(own.vision.layers) +
         " layers it comes after the last features that are used";
}

}  // namespace

LlavaFamily::LlavaFamily(Kind kind)
    : Family({.name = name_of(kind),
              .names = checkpoint_names(),
              .why_not_graphable =
                  kind == Kind::kLlava ? "" : "images of " + name_of(kind) + " differ in shape"}),
      kind_(kind) {}

const LlavaFamily& llava_family(Kind kind) {
  static const LlavaFamily llava(Kind::kLlava), next(Kind::kNext), one_vision(Kind::kOneVision);
  return kind == Kind::kNext ? next : kind == Kind::kOneVision ? one_vision : llava;
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
  if (own.kind != Kind::kLlava) out << '\n' << name << ' ' << own.most_tiles;
  for (const image::Size& canvas : own.canvases) out << ' ' << canvas.height << 'x' << canvas.width;
  return out.str();
}

family::VisionFacts LlavaFamily::vision(const family::ModelConfig& config) const {
  const LlavaFields& own = fields(config);
  const std::string root = "vision_tower.vision_model.";
  family::VisionFacts facts{.blocks = {.label = "vision tower",
                                       .layers = root + "encoder.layers.",
                                       .count = own.used_layers(),
                                       .head_dim = own.vision.hidden / own.vision.heads},
                            .unused_modules = {root + "post_layernorm"},
                            .unused_reason = unused_reason(own)};
  for (int64_t i = own.used_layers(); i < own.vision.layers; ++i)
    facts.unused_modules.push_back(root + "encoder.layers." + std::to_string(i));
  if (own.siglip_head) facts.unused_modules.push_back(root + "head");
  return facts;
}

/// Chat templates of the published checkpoints, by decoder; LLaVA-1.5's and Vicuna's is the one
/// used in training. LLaVA-1.5 was trained with padded images although its processor crops them; a
/// model whose processor stretches images was trained like that.
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

// transformers' LlavaImageProcessor pads if its file enables it; CLIPImageProcessor always crops.
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

family::Model LlavaFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                 at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<LlavaImpl>(config, dtype, device, storage);
}

}  // namespace lft::llava
