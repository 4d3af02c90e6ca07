// The shape of a stack of transformer blocks, for the memory plan and for checks of weights. Plain
// data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/llama/config.h"

namespace lft::family {

/// Equal blocks. The names of layers and norms are relative to a block ("self_attn.q_proj").
struct Tower {
  std::string label;     // "vision tower", for messages
  std::string layers;    // prefix of a block's number: "vision_tower.vision_model.encoder.layers."
  int64_t count = 0;     // number of blocks that run
  bool windows = false;  // attention is within images or parts of them, joined by a copy
  int64_t width = 0, inner = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<std::string> qkv;  // three layers, or one for all three
  std::string o;
  std::vector<std::string> mlp_in;  // one layer, or gate and up
  std::string mlp_out;
  std::vector<std::string> norms;                 // all norms of a block
  bool head_norms = false, branch_norms = false;  // on q and k; after attention and MLP
  std::vector<std::string> tables;  // full names: embeddings of patches, positions, tokens
};

/// The linear layers between tower and decoder, in the order in which they run, by their full
/// names.
struct ProjectorShape {
  struct Layer {
    std::string name;
    int64_t in = 0, out = 0;
    bool bare = false;  // `name` is the weight itself, [in, out], not a layer
    std::string weight() const { return bare ? name : name + ".weight"; }
  };
  std::vector<Layer> layers;
};

/// The decoder, which has the same shape in every family.
Tower decoder_tower(const llama::LlamaConfig& config);

}  // namespace lft::family
