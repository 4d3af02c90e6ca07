#include "models/ops/weight/fp8.h"

#include <ATen/ATen.h>

#include "kernels/common/error.h"
#include "kernels/fp8/fp8.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/float_types.h"
#include "models/ops/core/parallel.h"
#ifdef LFT_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
namespace {

/// A GPU's compute capability times ten; 0 for other devices.
int compute_capability([[maybe_unused]] at::Device device) {
#ifdef LFT_HAVE_CUDA
  if (device.is_cuda()) {
    int major = 0, minor = 0;
    const int index = device.has_index() ? device.index() : 0;
    const bool known =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) == cudaSuccess;
    return known ? 10 * major + minor : 0;
  }
#endif
  return 0;
}

/// The product of the codes in float32. On a GPU without FP8 and on a CPU the codes are converted
/// to float32 first, with equal precision.
at::Tensor product_of_codes(const at::Tensor& a_mk, const at::Tensor& b_nk) {
  if (!has_fp8_products(a_mk.device())) return at::mm(a_mk.to(at::kFloat), b_nk.to(at::kFloat).t());
  const at::Tensor one = at::ones({}, a_mk.options().dtype(at::kFloat));
  return at::_scaled_mm(a_mk, b_nk.t(), one, one, /*bias=*/{}, /*scale_result=*/{}, at::kFloat,
                        /*use_fast_accum=*/false);
}

bool in_fp8(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

Fp8Matrix empty_rows(int64_t rows, int64_t cols, at::Device device) {
  const auto options = at::TensorOptions().device(device);
  return {at::empty({rows, cols}, options.dtype(at::kFloat8_e4m3fn)),
          at::empty({rows, 1}, options.dtype(at::kFloat))};
}

}  // namespace

Fp8Matrix quantize_rows(const at::Tensor& x_mk) {
  const at::Tensor x = x_mk.contiguous();
  const int64_t rows = x.size(0), cols = x.size(1);
  Fp8Matrix result = empty_rows(rows, cols, x.device());
  const Fp8Rows all{.rows = rows,
                    .cols = cols,
                    .type = *float_type(x.scalar_type()),
                    .x = x.const_data_ptr(),
                    .codes = static_cast<uint8_t*>(result.codes_mk.mutable_data_ptr()),
                    .scales = result.scales_m1.mutable_data_ptr<float>()};
#ifdef LFT_HAVE_CUDA
  if (runs_kernels(x.device())) {
    on_device_of(x, [&](Stream stream) { fp8_quantize_rows(all, stream); });
    return result;
  }
#endif
  if (!x.is_cpu())
    throw Error(ErrorKind::kInternal, "FP8 on a device that this build has no kernel for");
  parallel_for(rows, std::max<int64_t>(1, kLoopGrain / std::max<int64_t>(1, cols)),
               [&](int64_t begin, int64_t end) {
                 Fp8Rows some = all;
                 some.rows = end - begin;
                 some.x =
                     static_cast<const char*>(all.x) + begin * cols * float_type_size(all.type);
                 some.codes += begin * cols;
                 some.scales += begin;
                 fp8_quantize_rows_ref(some);
               });
  return result;
}

bool has_fp8_products(at::Device device) { return compute_capability(device) >= 89; }

at::Tensor fp8_product(const Fp8Matrix& a_mk, const Fp8Matrix& b_nk, at::ScalarType dtype) {
  // On 9.x cuBLASLt supports one scale per row. Elsewhere LibTorch has a CUTLASS kernel for that,
  // which before 2.12 ignores the current stream.
  if (compute_capability(a_mk.codes_mk.device()) / 10 == 9) {
    return at::_scaled_mm(a_mk.codes_mk, b_nk.codes_mk.t(), a_mk.scales_m1, b_nk.scales_m1.t(),
                          /*bias=*/{}, /*scale_result=*/{}, dtype,
                          /*use_fast_accum=*/false);
  }
  return product_of_codes(a_mk.codes_mk, b_nk.codes_mk)
      .mul_(a_mk.scales_m1)
      .mul_(b_nk.scales_m1.t())
      .to(dtype);
}

std::vector<std::pair<std::string, at::Tensor>> Fp8Storage::parts() const {
  return {{"fp8_codes", weight_oi.codes_mk},
          {"fp8_scales", weight_oi.scales_m1},
          {"fp8_transposed_codes", transposed_io.codes_mk},
          {"fp8_transposed_scales", transposed_io.scales_m1}};
}

at::Tensor Fp8Storage::dense(at::ScalarType dtype) const {
  return weight_oi.codes_mk.to(at::kFloat).mul_(weight_oi.scales_m1).to(dtype);
}

at::Tensor Fp8Storage::product(const at::Tensor& x_ti, const at::Tensor& bias_o) const {
  if (!in_fp8(x_ti.scalar_type())) return CodedWeight::product(x_ti, bias_o);
  at::Tensor y = fp8_product(quantize_rows(x_ti), weight_oi, x_ti.scalar_type());
  if (bias_o.defined()) y.add_(bias_o.to(y.scalar_type()));
  return y;
}

at::Tensor Fp8Storage::product_backward(const at::Tensor& dy_to) const {
  if (!in_fp8(dy_to.scalar_type())) return CodedWeight::product_backward(dy_to);
  return fp8_product(quantize_rows(dy_to), transposed_io, dy_to.scalar_type());
}

c10::intrusive_ptr<CodedWeight> Fp8Storage::with(const std::vector<at::Tensor>& parts) const {
  auto other = c10::make_intrusive<Fp8Storage>(*this);
  other->weight_oi = {parts.at(0), parts.at(1)};
  other->transposed_io = {parts.at(2), parts.at(3)};
  return other;
}

c10::intrusive_ptr<Fp8Storage> empty_fp8(int64_t out, int64_t in, at::Device device) {
  auto storage = c10::make_intrusive<Fp8Storage>();
  storage->out = out;
  storage->in = in;
  storage->weight_oi = empty_rows(out, in, device);
  storage->transposed_io = empty_rows(in, out, device);
  return storage;
}

c10::intrusive_ptr<Fp8Storage> quantize_fp8(const at::Tensor& weight_oi, at::Device device) {
  const int64_t out = weight_oi.size(0), in = weight_oi.size(1);
  if (out % kFp8Multiple != 0 || in % kFp8Multiple != 0) {
    throw Error(ErrorKind::kInternal,
                "quantize_fp8: a weight of " + std::to_string(out) + " x " + std::to_string(in));
  }
  const at::Tensor weight = weight_oi.to(device);
  auto storage = c10::make_intrusive<Fp8Storage>();
  storage->out = out;
  storage->in = in;
  storage->weight_oi = quantize_rows(weight);
  storage->transposed_io = quantize_rows(weight.t());
  return storage;
}

}  // namespace lft::ops
