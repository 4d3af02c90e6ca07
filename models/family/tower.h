// A stack of transformer blocks and a projector, for the memory plan and for the checks of weights:
// read from the names and shapes of a model's tensors. Plain data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/family/names.h"

namespace lft::family {

/// Properties of a stack of blocks that the tensors do not show.
struct TowerFacts {
  std::string label;   // "vision tower", for messages
  std::string layers;  // prefix of a block's number: "vision_tower.vision_model.encoder.layers."
  int64_t count = 0;   // blocks that run
  std::vector<int64_t> numbers = {};  // theirs; empty: 0, 1, ...
  int64_t head_dim = 0;
  bool windows = false;  // attention is within images or parts of them, joined by a copy
  bool sparse = false;   // experts instead of an MLP: mlp_in and mlp_out are theirs, of all experts
};

/// Equal blocks, apart from their attention where `numbers` are some of a stack. Names of layers
/// and norms are below a block ("self_attn.q_proj").
struct Tower : TowerFacts {
  int64_t width = 0, inner = 0, heads = 0, kv_heads = 0;
  std::vector<std::string> qkv;  // q, k and v, or one layer for all three; of a gated delta rule
                                 // all layers that read its input
  std::string o;
  std::vector<std::string> mlp_in;  // one layer, or gate and up
  std::string mlp_out;
  std::vector<std::string> norms;  // norms of a block, including those of heads and branches
  bool head_norms = false, branch_norms = false;  // norms of q and k; of attention and MLP outputs
  bool branch_scales = false;                     // learned scales of attention and MLP outputs
  std::vector<std::string> tables;  // whole names: embeddings of patches, positions, tokens
};

/// The linear layers between tower and decoder, in execution order, full names.
struct ProjectorShape {
  struct Layer {
    std::string name;
    int64_t in = 0, out = 0;
    bool bare = false;  // the name is that of the weight itself, [in, out], without a layer
    std::string weight() const { return bare ? name : name + ".weight"; }
  };
  std::vector<Layer> layers;
};

/// Reads the tensors of the first of the blocks. Tables are the matrices outside the blocks and
/// outside unused modules.
Tower read_tower(const std::vector<TensorSpec>& tensors, const TowerFacts& facts,
                 const std::vector<std::string>& unused_modules);
ProjectorShape read_projector(const std::vector<TensorSpec>& tensors);

}  // namespace lft::family
