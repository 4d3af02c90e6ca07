#include "models/family/tower.h"

namespace lft::family {

Tower decoder_tower(const llama::LlamaConfig& config) {
  Tower tower{
      .label = "decoder",
      .layers = "language_model.model.layers.",
      .count = config.layers,
      .width = config.hidden,
      .inner = config.intermediate,
      .heads = config.heads,
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim,
      .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
      .o = "self_attn.o_proj",
      .mlp_in = {"mlp.gate_proj", "mlp.up_proj"},
      .mlp_out = "mlp.down_proj",
      .norms = {"input_layernorm", "post_attention_layernorm"},
      .tables = {"language_model.model.embed_tokens.weight", "language_model.lm_head.weight"}};
  if (config.qk_norm) {
    tower.head_norms = true;
    tower.norms.emplace_back("self_attn.q_norm");
    tower.norms.emplace_back("self_attn.k_norm");
  }
  if (config.branch_norms) {
    tower.branch_norms = true;
    tower.norms.emplace_back("pre_feedforward_layernorm");
    tower.norms.emplace_back("post_feedforward_layernorm");
  }
  if (config.tie_embeddings) tower.tables.pop_back();
  return tower;
}

}  // namespace lft::family
