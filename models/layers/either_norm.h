// An RMSNorm or a LayerNorm, for families whose config names one of them.
#pragma once
#include "models/layers/norms.h"

namespace lft::layers {

/// The other norm is null.
struct EitherNorm {
  RmsNorm rms{nullptr};
  LayerNorm layer{nullptr};
  /// Registers a norm of `size` features as a child of `parent`.
  void make(torch::nn::Module& parent, const char* name, bool is_rms, int64_t size, double eps,
            at::TensorOptions options);
  at::Tensor run(const char* name, const at::Tensor& x) const;
};

}  // namespace lft::layers
