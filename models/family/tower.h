// A row of transformer blocks, as who counts its memory or looks at its weights sees it. Plain
// data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/llama/config.h"

namespace lft::family {

/// Equal blocks. Names of layers and norms are below a block ("self_attn.q_proj").
struct Tower {
  std::string label;     // "vision tower", for messages
  std::string layers;    // before a block's number: "vision_tower.vision_model.encoder.layers."
  int64_t count = 0;     // blocks that run
  bool windows = false;  // attention is within images or parts of them, joined by a copy
  int64_t width = 0, inner = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<std::string> qkv;  // three layers, or one for all three
  std::string o;
  std::vector<std::string> mlp_in;  // one layer, or gate and up
  std::string mlp_out;
  std::vector<std::string> norms;  // of a block, those of heads and of branches among them
  bool head_norms = false, branch_norms = false;  // on q and k; on what attention and MLP give
  std::vector<std::string> tables;  // whole names: embeddings of patches, positions, tokens
};

/// The linear layers between tower and decoder, in the order they run, whole names.
struct ProjectorShape {
  struct Layer {
    std::string name;
    int64_t in = 0, out = 0;
    bool bare = false;  // the name is that of the weight itself, [in, out], which is no layer's
    std::string weight() const { return bare ? name : name + ".weight"; }
  };
  std::vector<Layer> layers;
};

/// Of every family's decoder.
Tower decoder_tower(const llama::LlamaConfig& config);

}  // namespace lft::family
