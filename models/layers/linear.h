// y = x W^T + b, with a slot for an adapter (LoRA and its variants, injected by name). Unlike
// torch::nn::Linear the weight is stored in the base dtype and computed in compute_dtype(), and no
// gradient is computed for a frozen weight.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <vector>

#include "models/ops/linear/linear.h"

namespace lft::layers {

class LinearImpl;

/// Replaces the forward pass of a linear layer. It is a torch module, so that its parameters belong
/// to the model. models/lora/ has one file pair per variant.
class LinearAdapter : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  virtual at::Tensor forward(const at::Tensor& x, const ops::Weight& weight_oi,
                             const at::Tensor& bias_o) = 0;
  /// The same for x = act(gate) * up. Variants that can recompute the product in the backward pass
  /// override it.
  virtual at::Tensor forward_gated(const at::Tensor& gate, const at::Tensor& up, ops::Gate kind,
                                   const ops::Weight& weight_oi, const at::Tensor& bias_o);
  /// The update that forward() adds, if it is only a low-rank one: layers with the same input then
  /// share work (linear_group.h). Must be called within the call() of the layer.
  virtual std::optional<ops::LowRank> low_rank() const { return std::nullopt; }
  /// low_rank() if it applies no dropout to the input, inside or outside a call; else one without
  /// A.
  virtual ops::LowRank shared_update() const { return {}; }
  /// Computes what passes read and each update of the parameters changes, at the same address. Must
  /// be called before the replay of a CUDA graph.
  virtual void refresh(const ops::Weight&) {}
  /// The low-precision copies of the parameters that products use directly.
  virtual std::vector<ops::ShadowPtr> shadows() const { return {}; }
  /// The merged weight: `weight_oi` [out, in] with this adapter, in float32, without a graph.
  virtual at::Tensor merged_oi(const at::Tensor& weight_oi) const = 0;
  /// The change of the layer's bias when the adapter is merged, float32 [out]; undefined: none.
  virtual at::Tensor bias_shift_o() const { return {}; }
  /// A new adapter with the same parameter names and the output of the layer before training; null
  /// if the layer needs no adapter for that.
  virtual std::shared_ptr<LinearAdapter> at_start() const { return nullptr; }
};

class LinearImpl : public torch::nn::Module {
 public:
  /// Uninitialised weight [out, in] (and bias [out]) of `dtype`, frozen. `experts`: the weight
  /// contains those of several experts, one below the other (expert_linear.h); 0: it does not.
  LinearImpl(int64_t in, int64_t out, bool has_bias, at::TensorOptions options,
             int64_t experts = 0);
  at::Tensor forward(const at::Tensor& x);  // [..., in] -> [..., out], in compute_dtype()
  /// The same for act(gate) * up, which is not saved for the backward pass.
  at::Tensor forward(const at::Tensor& gate, const at::Tensor& up,
                     ops::Gate kind = ops::Gate::kSilu);
  void set_adapter(std::shared_ptr<LinearAdapter>
                       adapter);  // registered as submodule "adapter"; nullptr removes it
  const std::shared_ptr<LinearAdapter>& adapter() const { return adapter_; }

  /// Stores the weight [out, in] quantized; `weight` then only has its shape (device meta).
  void store(c10::intrusive_ptr<ops::CodedWeight> weight_oi);
  /// Allocates the bias if it is on the device meta, as store() does for the weight.
  void hold_bias(at::Device device);
  /// The weight, dense or quantized.
  ops::Weight stored() const;
  at::Device device() const;

  at::Tensor weight, bias;  // bias may be undefined
  const int64_t experts;
  /// The weights that `weight` contains, and the rows of each.
  int64_t parts() const { return experts > 0 ? experts : 1; }
  int64_t outputs() const { return weight.size(0) / parts(); }

 private:
  std::shared_ptr<LinearAdapter> adapter_;
  c10::intrusive_ptr<ops::CodedWeight> coded_;
};
TORCH_MODULE(Linear);

}  // namespace lft::layers
