#include "src/train/optim/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "models/ops/update/grad_stats.h"
#include "src/train/optim/adamw.h"

namespace lft::train {
namespace {

constexpr double kMomentum = 0.95, kLeastNorm = 1e-7;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // of the quintic Newton-Schulz iteration
constexpr int kIterations = 5;

/// Approximates U V^T for the matrix U S V^T, with singular values in [0.5, 1.5]; in BF16.
at::Tensor orthogonalised(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x.div_(x.norm().clamp_min(kLeastNorm));
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return tall ? x.t() : x;
}

/// torch's adjust_lr_fn "original".
double rate_factor(const at::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0)),
             columns = static_cast<double>(matrix.size(1));
  return std::sqrt(std::max(1.0, rows / columns));
}

class Muon final : public AdamRule {
 public:
  explicit Muon(const RuleOptions& options) : AdamRule(options), decay_(options.weight_decay) {}

  std::vector<MomentSpec> moments(at::IntArrayRef sizes, bool) const override {
    if (sizes.size() == 2) return {{"momentum_buffer"}};
    return {{"exp_avg"}, {"exp_avg_sq"}};
  }

  void apply(const std::vector<Update>& updates, const ops::GradVerdict& verdict) const override {
    const at::NoGradGuard no_grad;
    std::vector<Update> others;
    for (const Update& u : updates) {
      if (u.moments.size() == 1) {
        apply_to_matrix(u, verdict);
      } else {
        others.push_back(u);
      }
    }
    apply_wide(others, verdict);
  }

  at::Tensor direction(const Slot& slot) const override {
    const at::Tensor momentum = slot.moment("momentum_buffer");
    if (!momentum.defined()) return AdamRule::direction(slot);
    return orthogonalised(momentum).to(at::kFloat) * rate_factor(momentum);
  }

  bool writes_copies() const override { return false; }
  bool in_pieces() const override { return false; }

  /// In float32: the clipped gradient, the new momentum, the new matrix and the selected result; in
  /// BF16: two matrices and two products of a square.
  double temporary_bytes(at::IntArrayRef sizes) const override {
    if (sizes.size() != 2) return 0;
    const auto side = static_cast<double>(std::min(sizes[0], sizes[1]));
    return 20 * static_cast<double>(sizes[0] * sizes[1]) + 4 * side * side;
  }

 private:
  void apply_to_matrix(const Update& u, const ops::GradVerdict& verdict) const {
    const at::Tensor stays = ops::found_inf(verdict) != 0, momentum = u.moments[0];
    const at::Tensor grad = u.grad.to(at::kFloat) * ops::clip_of(verdict);
    const at::Tensor moved = momentum.lerp(grad, 1 - kMomentum);
    const at::Tensor step = orthogonalised(grad.lerp(moved, kMomentum));  // Nesterov momentum
    const at::Tensor param =
        (u.param * (1 - u.lr * (u.decays ? decay_ : 0))).sub_(step, u.lr * rate_factor(u.param));
    u.param.detach().copy_(at::where(stays, u.param, param));
    momentum.copy_(at::where(stays, momentum, moved));
  }

  double decay_;
};

}  // namespace

RulePtr make_muon(const RuleOptions& options) { return std::make_unique<Muon>(options); }

}  // namespace lft::train
