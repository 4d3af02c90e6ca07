// A token whose MLP overflows in one layer: for every other token the model behaves
// normally.
#pragma once
#include <algorithm>
#include <string>

#include "support/tiny_llava.h"

namespace lft::test {

/// The last hidden dimension is used only by this token, and the first row of the layer's up_proj
/// reads it times `up`; no row of down_proj reads the result, so if it is finite it changes
/// nothing. 6e4 overflows FP16, 3e38 overflows FP32.
inline void poison_token(StoredTensors& tensors, int64_t token, int layer, float up) {
  const auto at = [&](const std::string& name, int64_t row, int64_t column) -> float& {
    StoredTensor& tensor = tensors.at(name);
    const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    return reinterpret_cast<float*>(tensor.bytes.data())[row * columns + column];
  };
  const std::string table = "language_model.model.embed_tokens.weight",
                    projector = "multi_modal_projector.linear_2.";
  const int64_t vocab = tensors.at(table).shape[0], last = tensors.at(table).shape[1] - 1;
  const auto clear_row = [&](const std::string& name, int64_t row) {
    for (int64_t i = 0; i < tensors.at(name).shape[1]; ++i) at(name, row, i) = 0;
  };
  for (int64_t id = 0; id < vocab; ++id) at(table, id, last) = id == token ? 8 : 0;
  clear_row(projector + "weight", last);
  at(projector + "bias", last, 0) = 0;
  for (int i = 0; i <= layer; ++i) {
    const std::string begin = kLayers + std::to_string(i);
    clear_row(begin + ".self_attn.o_proj.weight", last);
    if (i < layer) clear_row(begin + ".mlp.down_proj.weight", last);
  }
  const std::string mlp = kLayers + std::to_string(layer) + ".mlp.";
  clear_row(mlp + "up_proj.weight", 0);
  at(mlp + "up_proj.weight", 0, last) = up;
  for (int64_t row = 0; row <= last; ++row) at(mlp + "down_proj.weight", row, 0) = 0;
}

}  // namespace lft::test
