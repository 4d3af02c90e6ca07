#include "models/qwen_vl/qwen_vl_family.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "models/qwen_vl/qwen_vl.h"
#include "models/qwen_vl/qwen_vl_images.h"
#include "models/qwen_vl/qwen_vl_names.h"

namespace lft::qwen_vl {
namespace {

family::Tower tower_of(const VisionConfig& v) {
  family::Tower tower{.label = "vision tower",
                      .layers = "vision_tower.blocks.",
                      .count = v.depth,
                      .windows = true,
                      .width = v.hidden,
                      .inner = v.intermediate,
                      .heads = v.heads,
                      .kv_heads = v.heads,
                      .head_dim = v.head_dim(),
                      .qkv = {"attn.qkv"},
                      .o = "attn.proj",
                      .mlp_in = {"mlp.gate_proj", "mlp.up_proj"},
                      .mlp_out = "mlp.down_proj",
                      .norms = {"norm1", "norm2"},
                      .tables = {"vision_tower.patch_embed.proj.weight"}};
  if (v.generation == Generation::k2_5) return tower;
  tower.mlp_in = {"mlp.linear_fc1"};
  tower.mlp_out = "mlp.linear_fc2";
  tower.tables.emplace_back("vision_tower.pos_embed.weight");
  return tower;
}

family::ProjectorShape projector_of(const VisionConfig& v) {
  const std::string root = "multi_modal_projector.";
  family::ProjectorShape shape;
  const auto add = [&](const std::string& merger, const char* first, const char* second) {
    shape.layers.push_back({.name = root + merger + first, .in = v.merged(), .out = v.merged()});
    shape.layers.push_back({.name = root + merger + second, .in = v.merged(), .out = v.out});
  };
  if (v.generation == Generation::k2_5) {
    add("merger.", "mlp.0", "mlp.2");
    return shape;
  }
  add("merger.", "linear_fc1", "linear_fc2");
  for (size_t i = 0; i < v.deep_blocks.size(); ++i)
    add("deepstack_merger_list." + std::to_string(i) + ".", "linear_fc1", "linear_fc2");
  return shape;
}

family::FamilyFacts facts_of(Generation generation) {
  const std::string name = generation == Generation::k2_5 ? "Qwen2.5-VL" : "Qwen3-VL";
  return {.name = name,
          .names = checkpoint_names(generation),
          .processor_mark = kImageText,
          .placeholder = "<|image_pad|>",
          .why_not_graphable = "images of " + name + " differ in shape"};
}

}  // namespace

QwenVlFamily::QwenVlFamily(Generation generation)
    : Family(facts_of(generation)), generation_(generation) {}

const QwenVlFamily& qwen_vl_family(Generation generation) {
  static const QwenVlFamily qwen2_5(Generation::k2_5), qwen3(Generation::k3);
  return generation == Generation::k2_5 ? qwen2_5 : qwen3;
}

family::ModelConfig QwenVlFamily::parse(const nlohmann::json& config,
                                        const std::string& where) const {
  return parse_qwen_vl(generation_, config, where);
}

std::string QwenVlFamily::fingerprint(const family::ModelConfig& config) const {
  std::ostringstream out;
  out.precision(17);
  const VisionConfig& v = vision_of(config);
  const bool old = generation_ == Generation::k2_5;
  out << (old ? "qwen2_5_vl 1\n" : "qwen3_vl 1\n") << family::fingerprint_of_decoder(config.text)
      << '\n'
      << v.depth << ' ' << v.hidden << ' ' << v.intermediate << ' ' << v.heads << ' ' << v.patch
      << ' ' << v.merge << ' ' << v.out << ' ' << v.rope_theta << ' ' << v.activation << ' '
      << (old ? v.window : v.positions) << '\n'
      << config.image_token;
  for (const int64_t block : old ? v.full_blocks : v.deep_blocks) out << ' ' << block;
  return out.str();
}

family::ModelLayout QwenVlFamily::layout(const family::ModelConfig& config) const {
  const VisionConfig& v = vision_of(config);
  family::ModelLayout layout;
  layout.vision = tower_of(v);
  layout.projector = projector_of(v);
  layout.tensors = list_tensors(config, layout.projector);
  return layout;
}

family::FamilyDefaults QwenVlFamily::defaults(const family::ModelConfig& config,
                                              const nlohmann::json&) const {
  const bool has_system = vision_of(config).generation == Generation::k2_5;
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
