// Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464), which replaces attention in most layers of
// Qwen3.5: a short causal convolution, the gated delta rule, and a norm with a gate. Shape letters:
// b rows, t positions, d hidden, k kept rows, s sequences, c channels.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "models/layers/linear.h"
#include "models/llama/config.h"
#include "models/llama/kv_cache.h"
#include "models/ops/attention/attention.h"
#include "models/ops/elementwise/rms_norm.h"

namespace lft::llama {

/// The sequences of a pass. Each starts from its row of the cache if that is filled, else from a
/// state of zeros.
struct RecurrentPass {
  std::shared_ptr<const ops::PackedSequences> sequences;
  std::shared_ptr<const ops::PackedSequences> shared;  // of the pass, if some have positions in
                                                       // common; `sequences` are the whole ones
  at::Tensor places_n;       // int64: the flat indices in b * t of their positions; undefined: all
  KvCache* cache = nullptr;  // gets their last states; null: there is none
};

/// A convolution over the last positions of each channel, and SiLU.
class CausalConvImpl : public torch::nn::Module {
 public:
  CausalConvImpl(const DeltaConfig& config, at::TensorOptions options);
  /// x [n, c] -> [n, c]. `inputs_scw`: of the cache; the sequences' last inputs are written to it.
  /// Null: no cache.
  at::Tensor forward(const at::Tensor& x_nc, const ops::PackedSequences& sequences,
                     at::Tensor* inputs_scw);
  at::Tensor weight;  // [c, 1, kernel]
};
TORCH_MODULE(CausalConv);

/// y = w * x / sqrt(mean(x^2) + eps) * silu(gate) over the last dimension.
class GatedRmsNormImpl : public torch::nn::Module {
 public:
  GatedRmsNormImpl(int64_t size, double eps, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& gate);
  at::Tensor weight;

 private:
  double eps_;
};
TORCH_MODULE(GatedRmsNorm);

class GatedDeltaNetImpl : public torch::nn::Module {
 public:
  GatedDeltaNetImpl(const LlamaConfig& config, at::TensorOptions options,
                    at::TensorOptions linear_options);
  /// The recurrence over all positions; norm and output projection run on `rows` only (flat indices
  /// into b * t; undefined: all).
  at::Tensor forward(const ops::Normed& x_btd, const RecurrentPass& pass, int64_t layer,
                     const at::Tensor& rows_k);
  layers::Linear in_proj_qkv{nullptr}, in_proj_z{nullptr}, in_proj_b{nullptr}, in_proj_a{nullptr},
      out_proj{nullptr};
  CausalConv conv1d{nullptr};
  GatedRmsNorm norm{nullptr};
  at::Tensor A_log, dt_bias;  // NOLINT: the names of the checkpoint. One number per value head

 private:
  DeltaConfig config_;
};
TORCH_MODULE(GatedDeltaNet);

}  // namespace lft::llama
