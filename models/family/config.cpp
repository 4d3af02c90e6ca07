#include "models/family/config.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace lft::family {

using Json = nlohmann::json;

void parse_tokens(const ConfigFields& top, const ConfigFields& text, ModelConfig* config) {
  // The token may be outside the vocabulary: its embedding is never looked up.
  top.integer("image_token_id", 0, kMaxVocab, &config->image_token);
  top.integer("image_token_index", 0, kMaxVocab, &config->image_token);
  // Some files use -1 for "none".
  for (const ConfigFields* fields : {&text, &top}) {
    fields->integer("pad_token_id", -1, kMaxVocab, &config->pad_token);
    fields->integer("bos_token_id", -1, kMaxVocab, &config->bos_token);
  }
  const ConfigFields& with_eos = text.find("eos_token_id") != nullptr ? text : top;
  const Json* eos = with_eos.find("eos_token_id");
  if (eos == nullptr) return;
  config->eos_tokens.clear();
  if (eos->is_array() && eos->size() > 64)
    with_eos.fail("eos_token_id", std::to_string(eos->size()) + " ids", "up to 64 ids");
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    const int64_t token = with_eos.checked("eos_token_id", id, -1, kMaxVocab);
    if (token >= 0) config->eos_tokens.push_back(token);
  }
}

void parse_stored_dtype(const ConfigFields& top, const ConfigFields& text, ModelConfig* config) {
  for (const ConfigFields* fields : {&text, &top}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (fields->find(key) == nullptr) continue;
      std::string name;
      fields->text(key, &name);
      if (name.starts_with("torch.")) name.erase(0, 6);
      if (name == "auto") continue;
      if (name == "half") name = "float16";
      if (name == "float") name = "float32";
      if (name != "float32" && name != "float16" && name != "bfloat16")
        fields->fail(key, name, "float32, float16 or bfloat16");
      config->stored_dtype = name;
    }
  }
}

std::string fingerprint_of_decoder(const llama::LlamaConfig& t) {
  std::ostringstream out;
  out.precision(17);
  out << t.hidden << ' ' << t.intermediate << ' ' << t.layers << ' ' << t.heads << ' ' << t.kv_heads
      << ' ' << t.head_dim << ' ' << t.vocab << ' ' << t.max_positions << ' ' << t.rms_norm_eps
      << ' ' << t.rope_theta << ' ' << llama::fingerprint_of_scaling(t.rope_scaling) << ' '
      << t.attention_bias << t.mlp_bias << t.tie_embeddings;
  if (t.qkv_bias) out << " qkv_bias";
  if (t.qk_norm) out << " qk_norm";
  for (const int64_t pairs : t.mrope_section) out << ' ' << pairs;
  if (t.mrope_interleaved) out << " interleaved";
  if (t.activation != "silu") out << ' ' << t.activation;
  if (t.norms_add_one) out << " 1+w";
  if (t.branch_norms) out << " branch_norms";
  if (t.query_scalar > 0) out << " query_scalar " << t.query_scalar;
  if (t.image_blocks) out << " image_blocks";
  if (t.rotary_share < 1) out << " rotary_share " << t.rotary_share;
  if (t.gated_attention) out << " gated_attention";
  if (!t.recurrent.empty()) {
    const llama::DeltaConfig& d = t.delta;
    out << " delta " << d.key_heads << ' ' << d.value_heads << ' ' << d.key_dim << ' '
        << d.value_dim << ' ' << d.kernel << ' ';
    for (const bool recurrent : t.recurrent) out << recurrent;
  }
  if (t.experts.count > 0) {
    const llama::ExpertConfig& e = t.experts;
    out << " experts " << e.count << ' ' << e.per_token << ' ' << e.intermediate << ' '
        << e.shared_intermediate << ' ';
    for (const bool sparse : t.sparse) out << sparse;
  }
  if (t.slides.empty()) return out.str();
  out << " window " << t.window << ' ' << t.local_rope_theta << ' ' << t.local_rope_scaling.type
      << ' ' << t.local_rope_scaling.factor << ' ';
  for (const bool slides : t.slides) out << slides;
  const std::string& local = t.local_rope_scaling.type;  // the text above has all of these types
  if (local != "default" && local != "linear")
    out << ' ' << llama::fingerprint_of_scaling(t.local_rope_scaling);
  return out.str();
}

}  // namespace lft::family
