// What products need of float32 masters and give back to them: copies in the dtype that is computed
// in, kept from update to update, and gradients, added up where they are gathered. Knows no layer.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace lft::ops {

/// The share of a low-rank update's scale that its B carries in `dtype`. BF16: all of it, rounded
/// into the copy once, where it costs no pass of its own. FP16: none, the gradient takes it first,
/// as under autocast, and overflows where torch's does. Float32: none.
inline double carried_scale(at::ScalarType dtype, double scale) {
  return dtype == at::kBFloat16 ? scale : 1;
}

/// dtype(master * carried_scale(dtype, scale)), the product in float32: what a shadow holds, made
/// now. The master itself in float32.
at::Tensor low_copy(const at::Tensor& master, double scale, at::ScalarType dtype);

/// A master's low_copy(), kept so that no product has to make one. It serves only while the master
/// has the version it was made from: whoever else writes the master need not know of it.
class Shadow : public torch::CustomClassHolder {
 public:
  Shadow(at::Tensor master, double scale) : master_(std::move(master)), scale_(scale) {}
  /// From here on in `place`, contiguous BF16 or FP16 of the master's shape, not written yet;
  /// undefined: kept no longer.
  void keep(at::Tensor place);
  /// Written again where it does not serve. Nothing where none is kept.
  void refresh();
  /// An update of the master wrote it too.
  void written() { version_ = master_._version(); }

  /// The copy where it is in `dtype` and serves; else undefined.
  at::Tensor kept(at::ScalarType dtype) const;
  /// The same, else a copy made now.
  at::Tensor value(at::ScalarType dtype) const;
  const at::Tensor& master() const { return master_; }
  const at::Tensor& place() const { return place_; }
  double scale() const { return carried_scale(place_.scalar_type(), scale_); }  // of what is kept

 private:
  at::Tensor master_, place_;
  double scale_;
  int64_t version_ = -1;
};
using ShadowPtr = c10::intrusive_ptr<Shadow>;

/// One tensor [rows of all, columns] over tensors of two dimensions that lie one above the other in
/// memory, without a copy; else undefined.
at::Tensor stacked_view(at::TensorList parts);

/// While it lives, on this thread: layers may add the gradients of their A and B to .grad()
/// themselves, where that is defined, and hand autograd none. Only for passes that end in
/// backward(): torch::autograd::grad() would be given nothing. A layer stores it for its backward
/// pass.
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
/// as under autocast. `direct`: added to parameter.grad() where there is one, and undefined. In
/// float32 both ways give the same bits.
at::Tensor master_gradient(const at::Tensor& parameter, const at::Tensor& a_mk,
                           const at::Tensor& b_kn, double scale, bool direct);
/// The same of several parameters, whose gradients are the rows of a b one after the other;
/// undefined for one that is not trained. factor_n: of every column, where it is defined.
std::vector<at::Tensor> master_gradients(at::TensorList parameters, const at::Tensor& a_mk,
                                         const at::Tensor& b_kn, bool direct,
                                         const at::Tensor& factor_n = {});

}  // namespace lft::ops
