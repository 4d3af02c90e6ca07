#include "models/ops/update/adamw8.h"

#include <ATen/ATen.h>

#include "kernels/adamw8/adamw8.h"
#include "models/ops/update/update_call.h"

namespace lft::ops {
namespace {

struct NarrowUpdate {
  static constexpr const char* kName = "adamw8_";
  using Tensor = AdamW8Tensor;
  using Item = AdamW8Item;
  using Args = AdamW8Args;

  static void require(const UpdateChecks& checks, const AdamW8Tensor& tensor) {
    const int64_t count = tensor.param.numel();
    checks.require(tensor.param, at::kFloat, count, ": the parameter must be contiguous float32");
    for (const at::Tensor* codes : {&tensor.exp_avg, &tensor.exp_avg_sq}) {
      checks.require(*codes, at::kByte, count, ": codes must be contiguous uint8");
    }
    for (const at::Tensor* absmax : {&tensor.exp_avg_absmax, &tensor.exp_avg_sq_absmax}) {
      checks.require(*absmax, at::kFloat, moment_blocks(count),
                     ": the scales of blocks must be contiguous float32");
    }
  }

  static void fill(AdamW8Item& item, const AdamW8Tensor& tensor) {
    item.exp_avg = tensor.exp_avg.mutable_data_ptr<uint8_t>();
    item.exp_avg_sq = tensor.exp_avg_sq.mutable_data_ptr<uint8_t>();
    item.exp_avg_absmax = tensor.exp_avg_absmax.mutable_data_ptr<float>();
    item.exp_avg_sq_absmax = tensor.exp_avg_sq_absmax.mutable_data_ptr<float>();
  }

  static void loops(const std::vector<AdamW8Item>& items, const AdamW8Args& args) {
    static const loops::MomentCode exp_avg{code_maps().exp_avg}, exp_avg_sq{code_maps().exp_avg_sq};
    for_each_chunk(items, [&](int64_t, const Chunk& chunk) {
      const AdamW8Item& item = items[chunk.tensor];
      const int64_t block = chunk.first / kMomentBlock;
      loops::adamw8(item.param + chunk.first, grad_of(item, chunk),
                    {item.exp_avg + chunk.first, item.exp_avg_absmax + block, exp_avg},
                    {item.exp_avg_sq + chunk.first, item.exp_avg_sq_absmax + block, exp_avg_sq},
                    chunk.count, float_rates(item, args, args.control->clip));
      write_copy(item, chunk);
    });
  }

#ifdef LFT_HAVE_CUDA
  static void launch(AdamW8Args args, at::Device device, Stream stream) {
    const at::Tensor maps = upload(std::vector<CodeMaps>{code_maps()}, device);
    args.maps = static_cast<const CodeMaps*>(maps.const_data_ptr());
    adamw8(args, stream);
  }
#endif
};

}  // namespace

int64_t moment_blocks(int64_t elements) { return (elements + kMomentBlock - 1) / kMomentBlock; }

void adamw8_(const std::vector<AdamW8Tensor>& tensors, const AdamWOptions& options,
             const GradVerdict& verdict) {
  update<NarrowUpdate>(tensors, options, verdict);
}

at::Tensor decode_moment(const at::Tensor& codes, const at::Tensor& absmax, bool is_signed) {
  const CodeMap& map = is_signed ? code_maps().exp_avg : code_maps().exp_avg_sq;
  const at::Tensor values =
      at::from_blob(const_cast<float*>(map.value), {256}, at::kFloat).to(codes.device());
  const at::Tensor scales = absmax.repeat_interleave(kMomentBlock).narrow(0, 0, codes.numel());
  return (values.index_select(0, codes.reshape(-1).to(at::kInt)) * scales).view(codes.sizes());
}

}  // namespace lft::ops
