#include "models/ops/update/adamw.h"

#include <ATen/ATen.h>

#include "kernels/adamw/adamw.h"
#include "models/ops/update/update_call.h"

namespace lft::ops {
namespace {

struct WideUpdate {
  static constexpr const char* kName = "adamw_";
  using Tensor = AdamWTensor;
  using Item = AdamWItem;
  using Args = AdamWArgs;

  static void require(const UpdateChecks& checks, const AdamWTensor& tensor) {
    for (const at::Tensor* state : {&tensor.param, &tensor.exp_avg, &tensor.exp_avg_sq}) {
      checks.require(*state, at::kFloat, tensor.param.numel(),
                     ": parameter and moments must be contiguous float32");
    }
  }

  static void fill(AdamWItem& item, const AdamWTensor& tensor) {
    item.exp_avg = tensor.exp_avg.mutable_data_ptr<float>();
    item.exp_avg_sq = tensor.exp_avg_sq.mutable_data_ptr<float>();
  }

  static void loops(const std::vector<AdamWItem>& items, const AdamWArgs& args) {
    for_each_chunk(items, [&](int64_t, const Chunk& chunk) {
      const AdamWItem& item = items[chunk.tensor];
      loops::adamw(item.param + chunk.first, grad_of(item, chunk), item.exp_avg + chunk.first,
                   item.exp_avg_sq + chunk.first, chunk.count,
                   float_rates(item, args, args.control->clip));
      write_copy(item, chunk);
    });
  }

#ifdef LFT_HAVE_CUDA
  static void launch(const AdamWArgs& args, at::Device, Stream stream) { adamw(args, stream); }
#endif
};

}  // namespace

void adamw_(const std::vector<AdamWTensor>& tensors, const AdamWOptions& options,
            const GradVerdict& verdict) {
  update<WideUpdate>(tensors, options, verdict);
}

}  // namespace lft::ops
