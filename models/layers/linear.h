// y = x W^T + b, with a slot for an adapter (LoRA and its kin, injected by name from outside). Not
// a torch::nn::Linear: the weight is stored in the base dtype and computed in compute_dtype(), and
// a frozen weight gets no gradient computed.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <vector>

#include "models/ops/linear/linear.h"

namespace lft::layers {

class LinearImpl;

/// Replaces a linear's forward pass; a torch module, so that its parameters are the model's. One
/// file pair a variant in models/lora/.
class LinearAdapter : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(const at::Tensor& x, const ops::Weight& weight_oi,
                             const at::Tensor& bias_o) = 0;
  /// The same for x = act(gate) * up. A variant that can rebuild the product in its backward pass
  /// overrides this.
  virtual at::Tensor forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Gate kind,
                                   const ops::Weight& weight_oi, const at::Tensor& bias_o);
  /// What forward() adds, where that is a low-rank update and nothing else: layers of one input
  /// then share work (linear_group.h). Asked for within the layer's call().
  virtual std::optional<ops::LowRank> low_rank() const { return std::nullopt; }
  /// low_rank() where it never drops an element of the input, with or without a call; else one
  /// without A.
  virtual ops::LowRank shared_update() const { return {}; }
  /// Of the parameters that products are computed with as they are.
  virtual std::vector<ops::ShadowPtr> shadows() const { return {}; }
  /// The weight that alone does what `weight_oi` [out, in] and this adapter do together, in
  /// float32, without a graph.
  virtual at::Tensor merged_oi(const at::Tensor& weight_oi) const = 0;
  /// What merging adds to the layer's bias, float32 [out]; undefined: nothing.
  virtual at::Tensor bias_shift_o() const { return {}; }
  /// A new adapter that leaves the layer as it was before training, with parameters of the same
  /// names; null where the layer without an adapter does that.
  virtual std::shared_ptr<LinearAdapter> at_start() const { return nullptr; }
};

class LinearImpl : public torch::nn::Module {
 public:
  /// Uninitialised weight [out, in] (and bias [out]) of `dtype`, frozen.
  LinearImpl(int64_t in, int64_t out, bool has_bias, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x);  // [..., in] -> [..., out], in compute_dtype()
  /// Of act(gate) * up, which is not kept for the backward pass.
  at::Tensor forward(const at::Tensor& gate, const at::Tensor& up,
                     ops::Gate kind = ops::Gate::kSilu);
  void set_adapter(std::shared_ptr<LinearAdapter>
                       adapter);  // registered as submodule "adapter"; nullptr removes it
  const std::shared_ptr<LinearAdapter>& adapter() const { return adapter_; }

  /// Keeps a weight [out, in] as codes: `weight` is its shape alone from then on (device meta).
  void store(c10::intrusive_ptr<ops::CodedWeight> weight_oi);
  /// Memory for a bias that has none (device meta), as store() brings it for the weight.
  void hold_bias(at::Device device);
  /// What the layer multiplies with.
  ops::Weight stored() const;
  at::Device device() const;

  at::Tensor weight, bias;  // bias may be undefined

 private:
  std::shared_ptr<LinearAdapter> adapter_;
  c10::intrusive_ptr<ops::CodedWeight> coded_;
};
TORCH_MODULE(Linear);

}  // namespace lft::layers
