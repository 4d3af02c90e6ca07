// What the routers of mixtures of experts do in a forward pass: the tokens that each expert
// computes, and the load balancing loss (Fedus et al. 2021, "Switch Transformers", in the form of
// transformers' load_balancing_loss_func). Padding does not count. Shape letters: t positions of a
// padded batch, e experts, k choices of a position.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "models/ops/experts/expert_rows.h"

namespace lft::layers {

/// The loss couples all layers: e * sum_e (choices of e / rows) * (sum of the probabilities of e /
/// rows), with rows, choices and probabilities of all layers. Its gradient needs only the choices,
/// so the routers' backward passes add it and no graph is kept for it. A block that is recomputed
/// in the backward pass, when the forward pass has ended, is not counted again.
class Routing : public torch::CustomClassHolder {
 public:
  /// `weight`: backward passes add the gradient of weight * loss(); 0: without the loss.
  explicit Routing(double weight) : weight_(weight) {}
  bool balances() const { return weight_ != 0; }

  /// Called before the first router: `lengths` of the rows of `longest` positions each, without
  /// padding; empty: there is none.
  void begin(const std::vector<int64_t>& lengths, int64_t longest, at::Device device);
  /// The probabilities of a layer's router, float32, at all positions.
  void see(const at::Tensor& probabilities_te);
  /// The choices of a layer's router, at all positions or at fewer, which are not padding.
  void count(const ops::ExpertRows& rows, const at::Tensor& experts_tk);
  void end() { ended_ = true; }  // of the forward pass: nothing is recorded after it

  /// Tokens of each expert, layer by layer.
  const std::vector<int64_t>& tokens() const { return tokens_; }
  /// A scalar of double, without a graph, of a pass that has ended and balances().
  at::Tensor loss() const;
  /// A gradient of the probabilities of a layer's router plus that of weight * loss().
  at::Tensor with_loss(const at::Tensor& gradient_te) const;

 private:
  at::Tensor slope_e() const;  // of the loss, for each expert's sum of probabilities: double, host

  const double weight_;
  bool ended_ = false;
  int64_t rows_ = 0;                // seen, of all layers
  at::Tensor padding_n_, real_t1_;  // int64 places; float32 0 or 1. Undefined: no padding
  at::Tensor sums_e_;               // float32, of the probabilities
  std::vector<int64_t> tokens_;
};
using RoutingPtr = c10::intrusive_ptr<Routing>;

/// The probabilities of a router, float32 [t, e], which the result is, with the gradient of the
/// loss added in the backward pass. `routing` may be null.
at::Tensor balanced(const at::Tensor& probabilities_te, const RoutingPtr& routing);

/// During its lifetime, on this thread, a decoder's forward pass is recorded by `routing` (may be
/// null). The forward pass ends with it.
class RoutingGuard {
 public:
  explicit RoutingGuard(RoutingPtr routing);
  ~RoutingGuard();
  RoutingGuard(const RoutingGuard&) = delete;

 private:
  RoutingPtr previous_;
};
/// Null outside any guard.
const RoutingPtr& routing();

}  // namespace lft::layers
