// What a decoder computes from. Shape letters: b batch, t positions, d hidden, k image positions.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "models/ops/attention/attention.h"

namespace lft::llama {

/// The input of the decoder: padded rows, or packed sequences.
struct DecoderInput {
  DecoderInput() = default;
  DecoderInput(at::Tensor embeds, std::shared_ptr<const ops::PackedSequences> sequences = nullptr)
      : embeds_btd(std::move(embeds)), packed(std::move(sequences)) {}
  operator at::Tensor() const { return embeds_btd; }  // for observers of call()

  at::Tensor embeds_btd;
  std::shared_ptr<const ops::PackedSequences> packed;  // b is 1, t the total; null: padded
  std::vector<int64_t> lengths;  // positions without padding in each row; empty: all
  at::Tensor positions_3bt;  // int64, for rotary embeddings of time, height and width, none above
                             // the token's index in its sequence; undefined: they are that index
  at::Tensor blocks_bt;  // int64 (CPU): positions of one block (0 or more) see each other; -1: in
                         // no block; undefined: there are none
  std::vector<at::Tensor>
      deepstack_features_kd;  // added to the stream after layer 0, 1, ... at deep_places_k,
  at::Tensor deep_places_k;   // their indices in the flat b * t
};

}  // namespace lft::llama
