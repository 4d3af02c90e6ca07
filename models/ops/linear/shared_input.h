// The common input of several linear layers, such as q, k and v: one product for all low-rank
// updates, one gradient to which each layer adds in place, and inputs that are recomputed instead
// of saved. Every layer is a separate autograd node. Shape letters: t rows (all leading
// dimensions), i in, o out, r ranks of all layers together.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "models/ops/elementwise/rms_norm.h"
#include "models/ops/linear/linear.h"

namespace lft::ops {

/// The state shared by the nodes of the layers and of the input, and the gradients that they
/// collect in a backward pass.
struct SharedPass : torch::CustomClassHolder {
  std::vector<int64_t> shape;  // shape of x
  std::vector<int64_t> first,
      rank;  // per layer: its columns of h; rank 0: it computes a separate low-rank product
  std::vector<ShadowPtr> shadows;  // copies of the A's of all layers with a rank; may be null
  int64_t ranks = 0;
  bool trains_x = false, rebuilds = false;
  bool direct = false;  // gradients of A are added directly to .grad()
  double eps = 0;
  at::Tensor rstd;                // rstd of the norm that x can be recomputed from
  at::TensorOptions options;      // options of x
  c10::VariableVersion version;   // version of x, if it is recomputed
  uint32_t expected_version = 0;  // version at the first layer's read

  at::Tensor dx_ti;  // the sum so far; undefined before the first
  at::Tensor dh_tr;

  /// Must be called first by every node of a backward pass.
  void enter();
  /// The columns of dh that a layer writes.
  at::Tensor columns(int64_t layer);
  /// x [t, i] from the saved values.
  at::Tensor input(const at::Tensor& kept, const at::Tensor& norm_weight);
  /// Gradients of the A's, dh^T x, as in master_gradients(). In BF16 on a GPU x = s * rstd * weight
  /// is not recomputed: the smaller factors dh and dA are scaled instead.
  std::vector<at::Tensor> a_gradients(at::TensorList a_ri, const at::Tensor& dh_tr,
                                      const at::Tensor& kept, const at::Tensor& norm_weight);
  /// Called after the last layer: columns that no layer wrote are 0, and the collected gradients
  /// are returned.
  at::Tensor take_dh();
  at::Tensor take_dx();
  void forget_input();

 private:
  void check_version() const;
  int task_ = -1;
  at::Tensor input_ti_;
  std::vector<bool> written_;
};

class SharedInput {
 public:
  /// x [..., i] has the dtype of linear layers. updates: one per layer that applies no dropout to
  /// x; without A for the others. Nothing is computed before the first linear().
  SharedInput(Normed x, std::vector<LowRank> updates);
  /// linear() of the layer with this index; `update.a_ri` is its current A.
  at::Tensor linear(int64_t layer, const Weight& weight_oi, const at::Tensor& bias_o,
                    const LowRank& update);

 private:
  void prepare();
  Normed x_;
  std::vector<LowRank> updates_;
  std::vector<at::Tensor> x_ti_;  // x for each layer, whose gradient goes to the node of the input
  at::Tensor kept_, h_tr_;
  c10::intrusive_ptr<SharedPass> pass_;
};

/// The role of a layer with a shared input.
struct SharedLayer {
  c10::intrusive_ptr<SharedPass> pass;
  int64_t number = 0;
  at::Tensor kept, norm_weight;  // the values that x can be recomputed from
  at::Tensor h_tr;               // x A^T; undefined: the layer computes it
};
at::Tensor linear(const at::Tensor& x_ti, const SharedLayer& shared, const Weight& weight_oi,
                  const at::Tensor& bias_o, const LowRank& update);

}  // namespace lft::ops
