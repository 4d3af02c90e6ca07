#include "src/hf/interop/qwen_vl_gguf.h"

#include <cmath>

#include "models/family/family.h"
#include "models/qwen_vl/config.h"

namespace lft::hf {
namespace {

using family::strip;
using qwen_vl::VisionConfig;

constexpr int64_t kGgufWindow = 112;  // pixels; a GGUF file has no key for another size

/// The distance between blocks with full attention, the only layout that a GGUF file can express; 0
/// if the distances differ.
int64_t window_pattern(const VisionConfig& v) {
  if (v.full_blocks.empty()) return 0;
  const int64_t every = v.full_blocks[0] + 1;
  for (size_t i = 0; i < v.full_blocks.size(); ++i) {
    if (v.full_blocks[i] != every * static_cast<int64_t>(i + 1) - 1) return 0;
  }
  return every * static_cast<int64_t>(v.full_blocks.size() + 1) > v.depth ? every : 0;
}

/// A module in a block.
std::string qwen_module(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {{"norm1", "ln1"},
                                                                 {"norm2", "ln2"},
                                                                 {"attn.qkv", "attn_qkv"},
                                                                 {"attn.proj", "attn_out"},
                                                                 {"mlp.gate_proj", "ffn_gate"},
                                                                 {"mlp.up_proj", "ffn_up"},
                                                                 {"mlp.down_proj", "ffn_down"},
                                                                 {"mlp.fc1", "ffn_up"},
                                                                 {"mlp.fc2", "ffn_down"},
                                                                 {"mlp.linear_fc1", "ffn_up"},
                                                                 {"mlp.linear_fc2", "ffn_down"}};
  for (const auto& [canonical, gguf] : kNames) {
    if (name == canonical) return gguf;
  }
  return "";
}

std::string merger_name(std::string_view name) {
  if (name == "ln_q" || name == "norm") return "v.post_ln";
  return name == "mlp.0" || name == "linear_fc1" ? "mm.0" : "mm.2";
}

/// A deepstack merger has the number of its block.
std::string qwen_gguf_module(std::string_view module, const VisionConfig& v) {
  std::string_view rest, inner;
  if (strip(module, "multi_modal_projector.merger", &rest)) return merger_name(rest);
  if (strip(module, "multi_modal_projector.deepstack_merger_list", &rest)) {
    const size_t dot = rest.find('.');
    const int64_t block = v.deep_blocks.at(std::stoul(std::string(rest.substr(0, dot))));
    inner = rest.substr(dot + 1);
    if (inner.starts_with("linear_")) inner.remove_prefix(7);
    return "v.deepstack." + std::to_string(block) + "." + std::string(inner);
  }
  if (strip(module, "vision_tower.patch_embed.proj", &rest)) return "v.patch_embd";
  if (strip(module, "vision_tower.pos_embed", &rest)) return "v.position_embd";
  strip(module, "vision_tower.blocks", &rest);
  const size_t dot = rest.find('.');
  return "v.blk." + std::string(rest.substr(0, dot)) + "." + qwen_module(rest.substr(dot + 1));
}

void add_vision_tensor(const std::string& canonical, const VisionConfig& v, GgufForm* form) {
  const size_t dot = canonical.rfind('.');
  const std::string module = qwen_gguf_module(std::string_view(canonical).substr(0, dot), v),
                    end = canonical.substr(dot);
  const bool single = module == "v.position_embd" || module == "v.patch_embd";
  auto& list = form->vision_tensors;
  if (module == "v.patch_embd" && end == ".weight") {
    for (const int64_t frame : {0, 1})
      list.push_back({.name = module + end + (frame == 0 ? "" : ".1"),
                      .canonical = canonical,
                      .make = GgufTensor::Make::kFrame,
                      .part = frame,
                      .count = 2,
                      .single = true});
  } else if (!v.deep() && module.ends_with("attn_qkv")) {
    const std::string root = module.substr(0, module.size() - 3);
    for (const int64_t part : {0, 1, 2})
      list.push_back({.name = root + "qkv"[part] + end,
                      .canonical = canonical,
                      .make = GgufTensor::Make::kRows,
                      .part = part,
                      .count = 3});
  } else {
    list.push_back({.name = module + end, .canonical = canonical, .single = single});
  }
}

}  // namespace

std::string qwen_vl_without_gguf(const family::ModelConfig& config) {
  const VisionConfig& v = qwen_vl::vision_of(config);
  if (v.gated() && v.window != kGgufWindow)
    return "llama.cpp has windows of 112 pixels only (window_size)";
  if (v.gated() && window_pattern(v) == 0)
    return "llama.cpp has blocks of full attention at equal distances only "
           "(fullatt_block_indexes)";
  if (!config.text.slides.empty()) return "lft writes no GGUF with layers that have a window";
  return config.text.rope_scaling.type == "default"
             ? ""
             : "lft writes no GGUF with scaled rotary positions";
}

GgufForm qwen_vl_gguf(const family::ModelConfig& config) {
  const VisionConfig& v = qwen_vl::vision_of(config);
  const bool first = !v.deep();
  GgufForm form{.architecture = first ? "qwen2vl" : "qwen3vl"};
  add_gguf_decoder(config.text, /*interleaved=*/false, &form);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(v.positions)));
  add_gguf_vision({.projector = v.gated() ? "qwen2.5vl_merger"
                                : first   ? "qwen2vl_merger"
                                          : "qwen3vl_merger",
                   .text_hidden = config.text.hidden,
                   .image_size = first ? 560 : side * v.patch,
                   .patch = v.patch,
                   .hidden = v.hidden,
                   .inner = v.intermediate,
                   .blocks = v.depth,
                   .heads = v.heads,
                   .eps = 1e-6},
                  &form);
  if (v.gated()) {
    form.vision.emplace_back("clip.use_silu", true);
    form.vision.emplace_back("clip.vision.n_wa_pattern", static_cast<uint32_t>(window_pattern(v)));
  } else if (v.deep()) {
    std::vector<bool> deep(static_cast<size_t>(v.depth), false);
    for (const int64_t block : v.deep_blocks) deep[static_cast<size_t>(block)] = true;
    form.vision.emplace_back("clip.use_gelu", true);
    form.vision.emplace_back("clip.vision.spatial_merge_size", static_cast<uint32_t>(v.merge));
    form.vision.emplace_back("clip.vision.is_deepstack_layers", deep);
    form.text.emplace_back("qwen3vl.n_deepstack_layers",
                           static_cast<uint32_t>(v.deep_blocks.size()));
  }
  for (const family::TensorSpec& tensor : config.family->layout(config).tensors) {
    if (!tensor.name.starts_with("language_model.")) add_vision_tensor(tensor.name, v, &form);
  }
  return form;
}

}  // namespace lft::hf
