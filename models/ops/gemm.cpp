#include "models/ops/gemm.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace lft {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat); }

/// LibTorch multiplies float32 with MKL, which takes AVX2 on processors that are not Intel's, whatever they have. oneDNN takes AVX-512,
/// and multiplies twice as fast there; a product that is too small to gain from it stays with MKL.
bool prefers_onednn(const at::Tensor& a_mk, const at::Tensor& b_kn) {
#if defined(__x86_64__)
  static const bool faster = !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") && at::globalContext().hasMKLDNN();
  constexpr int64_t kSmall = int64_t{1} << 22;
  const bool dense = a_mk.is_contiguous() && (b_kn.is_contiguous() || b_kn.t().is_contiguous());  // others have slow paths only
  return faster && dense && a_mk.device().is_cpu() && a_mk.scalar_type() == at::kFloat && b_kn.scalar_type() == at::kFloat &&
         a_mk.size(0) * a_mk.size(1) * b_kn.size(1) >= kSmall;
#else
  return false;
#endif
}

at::Tensor onednn_product(const at::Tensor& a_mk, const at::Tensor& b_kn, const std::optional<at::Tensor>& bias_n = std::nullopt) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Product = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, c10::string_view, Scalars,
                             std::optional<c10::string_view>);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Product>();
  const at::AutoDispatchBelowADInplaceOrView plain;
  return op.call(a_mk, b_kn.t(), bias_n, "none", Scalars(), "");
}

at::Tensor plain_product(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  return prefers_onednn(a_mk, b_kn) ? onednn_product(a_mk, b_kn) : at::mm(a_mk, b_kn);
}

}  // namespace

bool widens_products(const at::Tensor& x) { return x.scalar_type() == at::kHalf && x.device().is_cpu(); }

at::Tensor product(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  return widens_products(a_mk) ? plain_product(wide(a_mk), wide(b_kn)).to(at::kHalf) : plain_product(a_mk, b_kn);
}

void product_into(at::Tensor& out_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (widens_products(a_mk)) {
    out_mn.copy_(plain_product(wide(a_mk), wide(b_kn)));
  } else if (prefers_onednn(a_mk, b_kn)) {
    out_mn.copy_(onednn_product(a_mk, b_kn));
  } else {
    at::mm_out(out_mn, a_mk, b_kn);
  }
}

at::Tensor affine(const at::Tensor& bias_n, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (prefers_onednn(a_mk, b_kn)) return onednn_product(a_mk, b_kn, bias_n);
  if (!widens_products(a_mk)) return at::addmm(bias_n, a_mk, b_kn);
  return at::addmm(wide(bias_n), wide(a_mk), wide(b_kn)).to(at::kHalf);
}

void add_product(at::Tensor& y_mn, const at::Tensor& a_mk, const at::Tensor& b_kn, double alpha) {
  if (widens_products(a_mk)) {
    y_mn.copy_(wide(y_mn).addmm_(wide(a_mk), wide(b_kn), /*beta=*/1, alpha));
  } else if (prefers_onednn(a_mk, b_kn)) {
    y_mn.add_(onednn_product(a_mk, b_kn), alpha);
  } else {
    y_mn.addmm_(a_mk, b_kn, /*beta=*/1, alpha);
  }
}

void accumulate(at::Tensor& sum_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  if (widens_products(a_mk)) {
    sum_mn.addmm_(wide(a_mk), wide(b_kn));
  } else {
    sum_mn.add_(plain_product(a_mk, b_kn));
  }
}

}  // namespace lft
