#include "models/qwen_vl/qwen_vl_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/qwen_vl/qwen_vl.h"
#include "models/qwen_vl/qwen_vl_images.h"
#include "models/qwen_vl/qwen_vl_names.h"

namespace lft::qwen_vl {
namespace {

family::FamilyFacts facts_of(Kind kind) {
  const Generation generation = kind.generation;
  const std::string name = std::string(generation == Generation::k2     ? "Qwen2-VL"
                                       : generation == Generation::k2_5 ? "Qwen2.5-VL"
                                       : generation == Generation::k3   ? "Qwen3-VL"
                                                                        : "Qwen3.5") +
                           (kind.experts ? "-MoE" : "");
  return {.name = name,
          .names = checkpoint_names(kind),
          .processor_mark = kImageText,
          .placeholder = "<|image_pad|>",
          .why_not_graphable = "images of " + name + " differ in shape"};
}

}  // namespace

QwenVlFamily::QwenVlFamily(Kind kind) : Family(facts_of(kind)), kind_(kind) {}

const QwenVlFamily& qwen_vl_family(Kind kind) {
  static const QwenVlFamily qwen2({Generation::k2}), qwen2_5({Generation::k2_5}),
      qwen3({Generation::k3}), qwen3_5({Generation::k3_5}), qwen3_moe({Generation::k3, true}),
      qwen3_5_moe({Generation::k3_5, true});
  if (kind.generation == Generation::k2) return qwen2;
  if (kind.generation == Generation::k2_5) return qwen2_5;
  if (kind.generation == Generation::k3) return kind.experts ? qwen3_moe : qwen3;
  return kind.experts ? qwen3_5_moe : qwen3_5;
}

family::ModelConfig QwenVlFamily::parse(const nlohmann::json& config,
                                        const std::string& where) const {
  return parse_qwen_vl(kind_, config, where);
}

std::string QwenVlFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const VisionConfig& v = vision_of(config);
  out << model_type_of(kind_) << " 1\n"
      << family::fingerprint_of_decoder(config.text) << '\n'
      << v.depth << ' ' << v.hidden << ' ' << v.intermediate << ' ' << v.heads << ' ' << v.patch
      << ' ' << v.merge << ' ' << v.out << ' ' << v.rope_theta << ' ' << v.activation << ' '
      << (v.gated()  ? v.window
          : v.deep() ? v.positions
                     : 0)
      << '\n'
      << config.image_token;
  if (v.gated() || v.deep())
    for (const int64_t block : v.gated() ? v.full_blocks : v.deep_blocks) out << ' ' << block;
  return out.str();
}

family::VisionFacts QwenVlFamily::vision(const family::ModelConfig& config) const {
  const VisionConfig& v = vision_of(config);
  return {.blocks = {.label = "vision tower",
                     .layers = "vision_tower.blocks.",
                     .count = v.depth,
                     .head_dim = v.head_dim(),
                     .windows = true},
          .deep_features = v.deep() ? std::ssize(v.deep_blocks) : 0};
}

family::FamilyDefaults QwenVlFamily::defaults(const family::ModelConfig& config,
                                              const nlohmann::json&) const {
  const bool has_system = !vision_of(config).deep();
  return {.template_name = has_system ? "chatml" : "qwen3-vl", .image_fit = "native"};
}

std::shared_ptr<const family::ImageProcessor> QwenVlFamily::image_processor(
    const family::ModelConfig& config, const family::ProcessorFile& file,
    const family::ImageRules& rules, std::vector<std::string>* notices) const {
  auto processor = native_processor(vision_of(config), file, rules);
  if (!file.json.contains("image_mean") || !file.json.contains("image_std"))
    notices->push_back(file.folder + " gives no image_mean and image_std: those of " + name +
                       " are used");
  return processor;
}

nlohmann::json QwenVlFamily::processor_fitted(const family::ModelConfig& config,
                                              const nlohmann::json& file,
                                              const family::ImageRules& rules) const {
  return with_bounds(vision_of(config), file, rules);
}

family::Model QwenVlFamily::build(const family::ModelConfig& config, at::ScalarType dtype,
                                  at::Device device, ops::BaseStorage storage) const {
  return std::make_shared<QwenVlImpl>(config, dtype, device, storage);
}

}  // namespace lft::qwen_vl
