// Bytes of the blocks of a vision tower or a decoder: attention or a gated delta rule, then an MLP
// or experts.
#pragma once
#include <string>

#include "models/family/tower.h"
#include "src/train/memory/memory_layers.h"

namespace lft::train {

/// A sequence of transformer blocks.
struct Stack {
  family::Tower tower;
  std::string unit, part;                                // name of the units, and their part
  double width = 0, attention = 0, head = 0, inner = 0;  // attention: all heads
  double heads = 0, kv_heads = 0;
  double tokens = 0, kept = 0;  // kept: tokens after the last block's attention
  double attended = 0;          // tokens in attention
  double stream = 4;            // bytes per element of the residual stream
  bool joined = false;          // attention outputs of several sequences are concatenated by a copy
  bool gates = false;           // attention is multiplied by a gate
  const llama::DeltaConfig* delta = nullptr;     // of a gated delta rule instead of attention
  const llama::ExpertConfig* experts = nullptr;  // instead of an MLP
};

/// Whether attention over all sequences of a pass is one kernel.
bool fused_sequences(const PassTypes& types);

/// With the sizes of the tower alone.
Stack make_stack(const family::Tower& tower, const std::string& unit, const std::string& part);

/// `reached`: the block's input needs a gradient.
MemoryUnit block_unit(const Counting& c, const Stack& s, int64_t index, bool reached);

}  // namespace lft::train
