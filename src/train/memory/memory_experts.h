// Bytes of an MLP of experts (models/llama/sparse_mlp.h).
#pragma once
#include "models/llama/config.h"

namespace lft::train {

/// A pass over one MLP.
struct ExpertPass {
  const llama::ExpertConfig& experts;
  double tokens = 0, hidden = 0;
  double compute = 4;      // bytes per element
  double at_a_time = 1;    // experts that threads compute at a time
  bool sums_copy = false;  // the rows of a token are copied to be added: not on a CPU

  /// A row for each expert of each token.
  double rows() const { return tokens * static_cast<double>(experts.per_token); }
  /// Gate and up of all rows.
  double gate_up() const {
    return rows() * 2 * static_cast<double>(experts.intermediate) * compute;
  }
  /// Kept for the backward pass, without adapters: the router's probabilities and indices, gate and
  /// up of the experts, and of the shared expert these and its output.
  double kept() const;
  /// The temporaries of the forward pass without gate and up, and of the backward pass.
  double forward() const;
  double backward() const;

 private:
  /// The output of all rows and their sums, or the gradient of the input.
  double outputs() const;
  /// `width` elements for each row of the experts that are computed at a time: of balanced ones,
  /// or of one that all tokens choose.
  double working(double width) const;
};

}  // namespace lft::train
