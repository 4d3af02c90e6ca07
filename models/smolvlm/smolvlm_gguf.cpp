// SmolVLM as llama.cpp's files have it.
#include "models/family/gguf_form.h"
#include "models/smolvlm/smolvlm_family.h"

namespace lft::smolvlm {
namespace {

using family::strip;

/// Of a module's canonical name.
std::string gguf_module(std::string_view module) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"layer_norm1", "ln1"},         {"layer_norm2", "ln2"},
      {"mlp.fc1", "ffn_up"},          {"mlp.fc2", "ffn_down"},
      {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"}, {"self_attn.out_proj", "attn_out"}};
  std::string_view rest;
  if (strip(module, "multi_modal_projector", &rest)) return "mm.model.fc";
  if (strip(module, "vision_tower.post_layernorm", &rest)) return "v.post_ln";
  if (strip(module, "vision_tower.embeddings.patch_embedding", &rest)) return "v.patch_embd";
  if (strip(module, "vision_tower.embeddings.position_embedding", &rest)) return "v.position_embd";
  strip(module, "vision_tower.encoder.layers", &rest);
  const size_t dot = rest.find('.');
  for (const auto& [canonical, gguf] : kNames) {
    if (rest.substr(dot + 1) == canonical)
      return "v.blk." + std::string(rest.substr(0, dot)) + "." + gguf;
  }
  return "";
}

}  // namespace

std::string SmolVlmFamily::unserved(family::Server server,
                                    const family::ModelConfig& config) const {
  if (server == family::Server::kSglang) return Family::unserved(server, config);
  return config.text.rope_scaling.type == "default"
             ? ""
             : "lft writes no GGUF with scaled rotary positions";
}

family::GgufForm SmolVlmFamily::gguf(const family::ModelConfig& config) const {
  const SmolVlmFields& own = fields(config);
  family::GgufForm form{.architecture = "llama"};
  family::add_gguf_decoder(config.text, /*turned=*/true, &form);
  family::add_gguf_vision({.projector = "idefics3",
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
  for (const family::TensorSpec& tensor : tensors(config)) {
    if (tensor.name.starts_with("language_model.")) continue;
    const size_t dot = tensor.name.rfind('.');
    const std::string module = gguf_module(std::string_view(tensor.name).substr(0, dot));
    form.vision_tensors.push_back(
        {.name = module + tensor.name.substr(dot),
         .canonical = tensor.name,
         .single = module == "v.position_embd" || module == "v.patch_embd"});
  }
  return form;
}

}  // namespace lft::smolvlm
