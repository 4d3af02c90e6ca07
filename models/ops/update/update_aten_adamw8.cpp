// adamw8_() in plain ATen ops, and the decoding that debugging needs.
#include <ATen/ATen.h>

#include "kernels/adamw8/adamw8.h"
#include "models/ops/update/update_aten.h"

namespace lft::ops {
namespace {

at::Tensor on(const at::Tensor& like, const float* values, int64_t count) {
  return at::from_blob(const_cast<float*>(values), {count}, at::kFloat)
      .to(like.device(), at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

/// [blocks, kMomentBlock], the last block filled up with zeros.
at::Tensor in_blocks(const at::Tensor& flat) {
  const int64_t blocks = moment_blocks(flat.numel());
  return at::constant_pad_nd(flat, {0, blocks * kMomentBlock - flat.numel()})
      .view({blocks, kMomentBlock});
}

struct Encoded {
  at::Tensor codes, absmax;
};
Encoded encode_moment(const at::Tensor& moment, const CodeMap& map) {
  const at::Tensor blocks = in_blocks(moment.view(-1)), absmax = std::get<0>(blocks.abs().max(1));
  const at::Tensor scaled = at::where(absmax.unsqueeze(1) > 0, blocks / absmax.unsqueeze(1),
                                      -2);  // a block of zeros: code 0
  const at::Tensor codes =
      at::bucketize(scaled, on(moment, map.middle, 255), /*out_int32=*/true, /*right=*/false);
  return {codes.to(at::kByte).view(-1).narrow(0, 0, moment.numel()).view(moment.sizes()), absmax};
}

}  // namespace

at::Tensor decode_moment(const at::Tensor& codes, const at::Tensor& absmax, bool is_signed) {
  const CodeMap& map = is_signed ? code_maps().exp_avg : code_maps().exp_avg_sq;
  const at::Tensor values =
      on(codes, map.value, 256).index_select(0, codes.reshape(-1).to(at::kInt));
  return (in_blocks(values) * absmax.unsqueeze(1))
      .view(-1)
      .narrow(0, 0, codes.numel())
      .view(codes.sizes());
}

void adamw8_aten_(const std::vector<AdamW8Tensor>& tensors, const AdamWOptions& options,
                  const GradVerdict& verdict) {
  const at::Tensor stays = found_inf(verdict) != 0;
  for (const AdamW8Tensor& tensor : tensors) {
    const at::Tensor exp_avg =
        decode_moment(tensor.exp_avg, tensor.exp_avg_absmax, /*is_signed=*/true);
    const at::Tensor exp_avg_sq =
        decode_moment(tensor.exp_avg_sq, tensor.exp_avg_sq_absmax, /*is_signed=*/false);
    adamw_aten_(
        {{tensor.param, tensor.grad, exp_avg, exp_avg_sq, tensor.lr, tensor.t, tensor.copy}},
        options, verdict);
    const Encoded first = encode_moment(exp_avg, code_maps().exp_avg),
                  second = encode_moment(exp_avg_sq, code_maps().exp_avg_sq);
    tensor.exp_avg.copy_(at::where(stays, tensor.exp_avg, first.codes));
    tensor.exp_avg_sq.copy_(at::where(stays, tensor.exp_avg_sq, second.codes));
    tensor.exp_avg_absmax.copy_(at::where(stays, tensor.exp_avg_absmax, first.absmax));
    tensor.exp_avg_sq_absmax.copy_(at::where(stays, tensor.exp_avg_sq_absmax, second.absmax));
  }
}

}  // namespace lft::ops
