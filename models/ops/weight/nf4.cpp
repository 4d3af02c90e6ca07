#include "models/ops/weight/nf4.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "kernels/nf4/nf4.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"
#ifdef LFT_HAVE_CUDA
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
namespace {

Nf4Weight raw(const Nf4Storage& storage) {
  return {.count = storage.out * storage.in,
          .codes = storage.codes.mutable_data_ptr<uint8_t>(),
          .scale_codes = storage.scale_codes.mutable_data_ptr<uint8_t>(),
          .scale_absmax = storage.scale_absmax.mutable_data_ptr<float>(),
          .scale_offset = static_cast<float>(storage.scale_offset)};
}

/// Dequantizes one block: its 16 values times its scale, then two elements per byte.
template <class T>
void dequantize_block(const Nf4Weight& from, const float* scale_values, int64_t block, T* out) {
  const volatile float product =
      scale_values[from.scale_codes[block]] * from.scale_absmax[block / kNf4ScaleBlock];
  const float scale = product + from.scale_offset;
  T value[16];
  for (int code = 0; code < 16; ++code) value[code] = static_cast<T>(nf4_map().value[code] * scale);
  const int64_t first = block * kNf4Block, count = std::min(kNf4Block, from.count - first);
  const uint8_t* codes = from.codes + first / 2;
  for (int64_t i = 0; i + 1 < count; i += 2) {
    out[i] = value[codes[i / 2] >> 4];
    out[i + 1] = value[codes[i / 2] & 15];
  }
  if (count % 2 == 1) out[count - 1] = value[codes[count / 2] >> 4];
}

at::Tensor scale_values() {
  return at::from_blob(const_cast<float*>(code_maps().exp_avg.value), {256}, at::kFloat);
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> Nf4Storage::parts() const {
  return {
      {"nf4_codes", codes}, {"nf4_scale_codes", scale_codes}, {"nf4_scale_absmax", scale_absmax}};
}

c10::intrusive_ptr<CodedWeight> Nf4Storage::with(const std::vector<at::Tensor>& parts) const {
  auto other = c10::make_intrusive<Nf4Storage>(*this);
  other->codes = parts.at(0);
  other->scale_codes = parts.at(1);
  other->scale_absmax = parts.at(2);
  return other;
}

c10::intrusive_ptr<Nf4Storage> empty_nf4(int64_t out, int64_t in, at::Device device) {
  auto storage = c10::make_intrusive<Nf4Storage>();
  storage->out = out;
  storage->in = in;
  const int64_t count = out * in;
  const at::TensorOptions bytes = at::TensorOptions(at::kByte).device(device);
  storage->codes = at::empty({(count + 1) / 2}, bytes);
  storage->scale_codes = at::empty({nf4_blocks(count)}, bytes);
  storage->scale_absmax = at::empty({nf4_scale_blocks(count)}, bytes.dtype(at::kFloat));
  storage->scale_values = at::empty({256}, bytes.dtype(at::kFloat));
  return storage;
}

#ifdef LFT_HAVE_CUDA
namespace {

/// The codes of the weights are made on the device, from their stored dtype; those of the scales,
/// one for 64 weights, on the host.
c10::intrusive_ptr<Nf4Storage> quantize_on_device(const at::Tensor& weight_oi, at::Device device) {
  const at::Tensor there = weight_oi.to(device).contiguous();
  auto storage = empty_nf4(there.size(0), there.size(1), device);
  const at::Tensor scales =
      at::empty({nf4_blocks(there.numel())}, there.options().dtype(at::kFloat));
  on_device(device, [&](Stream stream) {
    nf4_quantize_on_device(*float_type(there.scalar_type()), there.const_data_ptr(), there.numel(),
                           scales.mutable_data_ptr<float>(),
                           storage->codes.mutable_data_ptr<uint8_t>(), stream);
  });
  const at::Tensor scale_codes = at::empty_like(storage->scale_codes, at::kCPU),
                   scale_absmax = at::empty_like(storage->scale_absmax, at::kCPU);
  Nf4Weight to{.count = there.numel(),
               .scale_codes = scale_codes.mutable_data_ptr<uint8_t>(),
               .scale_absmax = scale_absmax.mutable_data_ptr<float>()};
  nf4_quantize_scales(scales.cpu().const_data_ptr<float>(), to);
  storage->scale_offset = to.scale_offset;
  storage->scale_codes.copy_(scale_codes);
  storage->scale_absmax.copy_(scale_absmax);
  storage->scale_values.copy_(scale_values());
  return storage;
}

}  // namespace
#endif

c10::intrusive_ptr<Nf4Storage> quantize_nf4(const at::Tensor& weight_oi, at::Device device) {
#ifdef LFT_HAVE_CUDA
  if (runs_kernels(device) && float_type(weight_oi.scalar_type()))
    return quantize_on_device(weight_oi, device);
#endif
  const at::Tensor dense = weight_oi.to(at::kCPU, at::kFloat).contiguous();
  auto storage = empty_nf4(dense.size(0), dense.size(1), at::kCPU);
  const int64_t count = dense.numel();
  storage->scale_values.copy_(scale_values());
  Nf4Weight to = raw(*storage);
  const at::Tensor scales = at::empty({nf4_blocks(count)}, at::kFloat);
  parallel_for(nf4_blocks(count), kLoopGrain / kNf4Block, [&](int64_t begin, int64_t end) {
    nf4_quantize_blocks(dense.const_data_ptr<float>(), begin, end - begin,
                        scales.mutable_data_ptr<float>(), to);
  });
  nf4_quantize_scales(scales.const_data_ptr<float>(), to);
  storage->scale_offset = to.scale_offset;
  for (at::Tensor* part :
       {&storage->codes, &storage->scale_codes, &storage->scale_absmax, &storage->scale_values})
    *part = part->to(device);
  return storage;
}

at::Tensor Nf4Storage::dense(at::ScalarType dtype) const {
  at::Tensor dense = at::empty({out, in}, codes.options().dtype(dtype));
  const Nf4Weight from = raw(*this);
  const float* values = scale_values.const_data_ptr<float>();
#ifdef LFT_HAVE_CUDA
  if (runs_kernels(codes.device())) {
    on_device_of(codes, [&](Stream stream) {
      nf4_dequantize(from, values, *float_type(dtype), {0, from.count}, dense.mutable_data_ptr(),
                     stream);
    });
    return dense;
  }
#endif
  if (!codes.is_cpu())
    throw Error(ErrorKind::kInternal, "NF4 weights on a device that this build has no kernel for");
  with_loop_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* to = dense.mutable_data_ptr<T>();
    parallel_for(nf4_blocks(from.count), kLoopGrain / kNf4Block, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        dequantize_block(from, values, block, to + block * kNf4Block);
    });
  });
  return dense;
}

}  // namespace lft::ops
