// The state of a pass that every layer of a decoder reads. Shape letters: b rows, t positions, d
// hidden, k kept rows, s cached positions.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/layers/routing.h"
#include "models/llama/config.h"
#include "models/llama/decoder_input.h"
#include "models/llama/gated_delta_net.h"
#include "models/llama/kv_cache.h"
#include "models/llama/rotary.h"
#include "models/ops/attention/attention.h"

namespace lft::llama {

/// Rotary angles, packed sequences or the cache (neither: padded rows), and masks.
struct LlamaPass {
  Rotation rotation;
  Rotation queries;  // also scaled for the scores; undefined: `rotation`
  std::shared_ptr<const ops::PackedSequences> packed;  // b is 1, t the total
  KvCache* cache = nullptr;
  at::Tensor cache_mask;  // bool [b, 1, 1, s]: visible cached positions. Undefined: the sequences
                          // begin here
  CachePlaces cache_places;              // of new keys and values
  at::Tensor mask;                       // attention_mask(); undefined: causal
  std::vector<at::Tensor> packed_masks;  // one per sequence; empty: all causal
  RecurrentPass recurrent;               // of the layers without attention
  layers::RoutingPtr routing;            // of the layers with experts; null: not recorded
};

/// The rows of a [b, t, d] tensor with these flat indices: [k, d]; all rows if `rows` is undefined.
at::Tensor keep_rows(const at::Tensor& x_btd, const at::Tensor& rows_k);

/// The pass of the layers with full attention, or of those with a window (`local`). `cache`: null
/// in training; if it contains positions, the pass continues them.
LlamaPass make_pass(const LlamaConfig& config, const DecoderInput& input, KvCache* cache,
                    bool local, RotaryAngles& angles);

}  // namespace lft::llama
