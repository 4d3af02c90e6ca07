#include "src/hf/interop/smolvlm_gguf.h"

#include "models/family/family.h"
#include "models/smolvlm/config.h"

namespace lft::hf {
namespace {

std::string smolvlm_gguf_module(std::string_view module) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"layer_norm1", "ln1"},         {"layer_norm2", "ln2"},
      {"mlp.fc1", "ffn_up"},          {"mlp.fc2", "ffn_down"},
      {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"}, {"self_attn.out_proj", "attn_out"}};
  std::string_view rest;
  if (family::strip(module, "multi_modal_projector", &rest)) return "mm.model.fc";
  if (family::strip(module, "vision_tower.post_layernorm", &rest)) return "v.post_ln";
  if (family::strip(module, "vision_tower.embeddings.patch_embedding", &rest))
    return "v.patch_embd";
  if (family::strip(module, "vision_tower.embeddings.position_embedding", &rest))
    return "v.position_embd";
  family::strip(module, "vision_tower.encoder.layers", &rest);
  const size_t dot = rest.find('.');
  for (const auto& [canonical, gguf] : kNames) {
    if (rest.substr(dot + 1) == canonical)
      return "v.blk." + std::string(rest.substr(0, dot)) + "." + gguf;
  }
  return "";
}

}  // namespace

std::string smolvlm_without_gguf(const family::ModelConfig& config) {
  return config.text.rope_scaling.type == "default"
             ? ""
             : "lft writes no GGUF with scaled rotary positions";
}

GgufForm smolvlm_gguf(const family::ModelConfig& config) {
  const smolvlm::SmolVlmFields& own = smolvlm::fields(config);
  GgufForm form{.architecture = "llama"};
  add_gguf_decoder(config.text, /*interleaved=*/true, &form);
  add_gguf_vision({.projector = "idefics3",
                   .text_hidden = config.text.hidden,
                   .image_size = own.vision.image_size,
                   .patch = own.vision.patch_size,
                   .hidden = own.vision.hidden,
                   .inner = own.vision.intermediate,
                   .blocks = own.vision.layers,
                   .heads = own.vision.heads,
                   .eps = own.vision.layer_norm_eps},
                  &form);
  form.vision.emplace_back("clip.use_gelu", true);
  form.vision.emplace_back("clip.vision.projector.scale_factor", static_cast<uint32_t>(own.scale));
  form.from_processor = {{.key = "clip.vision.preproc_image_size",
                          .pointer = "/size/longest_edge",
                          .otherwise = static_cast<uint32_t>(own.vision.image_size)}};
  for (const family::TensorSpec& tensor : config.family->layout(config).tensors) {
    if (tensor.name.starts_with("language_model.")) continue;
    const size_t dot = tensor.name.rfind('.');
    const std::string module = smolvlm_gguf_module(std::string_view(tensor.name).substr(0, dot));
    form.vision_tensors.push_back(
        {.name = module + tensor.name.substr(dot),
         .canonical = tensor.name,
         .single = module == "v.position_embd" || module == "v.patch_embd"});
  }
  return form;
}

}  // namespace lft::hf
