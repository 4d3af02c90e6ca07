// Float32 master weights in products: low-precision copies that are kept from update to update, and
// gradients that are accumulated in place. Independent of layers.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace lft::ops {

/// The part of the scale of a low-rank update that the copy of its B contains in `dtype`. BF16: all
/// of it, rounded into the copy once. FP16: none; the gradient is multiplied first, as under
/// autocast, and overflows where it does in torch. Float32: none.
inline double carried_scale(at::ScalarType dtype, double scale) {
  return dtype == at::kBFloat16 ? scale : 1;
}

/// dtype(master * carried_scale(dtype, scale)) with the product in float32: a new copy. In float32
/// the master itself.
at::Tensor low_copy(const at::Tensor& master, double scale, at::ScalarType dtype);

/// A stored low_copy() of a master, so that products need not make one. It is valid only for the
/// version of the master that it was made from, so other writers of the master need not know about
/// it.
class Shadow : public torch::CustomClassHolder {
 public:
  Shadow(at::Tensor master, double scale) : master_(std::move(master)), scale_(scale) {}
  /// Stores the copy in `place`, contiguous BF16 or FP16 of the shape of the master, not written
  /// yet; undefined: the copy is dropped.
  void keep(at::Tensor place);
  /// Rewrites the copy if it is not valid. Does nothing without a stored copy.
  void refresh();
  /// Marks the copy as written by an update of the master.
  void written() { version_ = master_._version(); }

  /// The stored copy if it has this dtype and is valid; else undefined.
  at::Tensor kept(at::ScalarType dtype) const;
  /// The stored copy, or else a new one.
  at::Tensor value(at::ScalarType dtype) const;
  const at::Tensor& master() const { return master_; }
  const at::Tensor& place() const { return place_; }
  double scale() const {
    return carried_scale(place_.scalar_type(), scale_);
  }  // of the stored copy

 private:
  at::Tensor master_, place_;
  double scale_;
  int64_t version_ = -1;
};
using ShadowPtr = c10::intrusive_ptr<Shadow>;

/// A view [rows of all, columns] over matrices that are adjacent in memory; else undefined.
at::Tensor stacked_view(at::TensorList parts);

/// During its lifetime, on this thread, layers add the gradients of their A and B to .grad()
/// directly, if it is defined, and return none to autograd. Only for passes that end in backward():
/// torch::autograd::grad() would receive nothing. Layers store it for their backward pass.
class DirectGradientsGuard {
 public:
  explicit DirectGradientsGuard(bool direct = true);
  ~DirectGradientsGuard();
  DirectGradientsGuard(const DirectGradientsGuard&) = delete;

 private:
  bool previous_;
};
bool direct_gradients();

/// scale * a b as the gradient of a float32 parameter; the product is rounded to its dtype first,
/// as under autocast. `direct`: added to parameter.grad() if that is defined; then the result is
/// undefined. In float32 both are bitwise the same.
at::Tensor master_gradient(const at::Tensor& parameter, const at::Tensor& a_mk,
                           const at::Tensor& b_kn, double scale, bool direct);
/// The same for several parameters, whose gradients are consecutive rows of a b; undefined for one
/// that is not trained. factor_n: multiplied with the columns, if defined.
std::vector<at::Tensor> master_gradients(at::TensorList parameters, const at::Tensor& a_mk,
                                         const at::Tensor& b_kn, bool direct,
                                         const at::Tensor& factor_n = {});

}  // namespace lft::ops
