#include "src/hf/fill_weights_host.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "src/hf/model_dir.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"

namespace lft::hf {
namespace {

constexpr int64_t kBlockBytes =
    256 << 10;  // still in a core's cache when it is checked and then converted to the target

bool is_half_width(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

class HostFiller : public PieceFiller {
 public:
  explicit HostFiller(const FillPlan& plan) : plan_(plan) {}

  bool fill(size_t piece) override {
    const at::Tensor target = plan_.target(piece);
    const int64_t length = kBlockBytes / io::dtype_size(plan_.job(piece).info->dtype);
    for (int64_t done = 0; done < target.numel(); done += length) {
      const at::Tensor block = target.narrow(0, done, std::min(length, target.numel() - done));
      if (!fill_block(piece, plan_.pieces[piece].begin + done, block)) return false;
    }
    return true;
  }

 private:
  bool fill_block(size_t piece, int64_t begin, const at::Tensor& target) {
    const at::ScalarType stored = to_scalar_type(plan_.job(piece).info->dtype);
    const bool same = target.scalar_type() == stored;
    const at::Tensor source = same ? target : scratch(stored, target.numel());
    const auto size = static_cast<uint64_t>(source.element_size());
    plan_.read(piece, static_cast<uint64_t>(begin) * size, source.nbytes(), source.data_ptr());
    if (plan_.options.check_finite && first_non_finite(source) >= 0) return false;
    if (same) return true;
    convert(source, target);
    return !plan_.options.check_finite || target.scalar_type() != at::kHalf ||
           first_non_finite(target) < 0;
  }

  /// Between F16 and BF16 through F32, as in LibTorch, which converts one element at a time.
  void convert(const at::Tensor& source, const at::Tensor& target) {
    const bool two_steps =
        is_half_width(source.scalar_type()) && is_half_width(target.scalar_type());
    target.copy_(two_steps ? scratch(at::kFloat, source.numel()).copy_(source) : source);
  }

  at::Tensor scratch(at::ScalarType type, int64_t numel) {
    at::Tensor& buffer = scratch_[type];
    if (!buffer.defined()) buffer = at::empty({kBlockBytes / 2}, at::TensorOptions(type));
    return buffer.narrow(0, 0, numel);
  }

  const FillPlan& plan_;
  std::map<at::ScalarType, at::Tensor> scratch_;
};

}  // namespace

std::unique_ptr<PieceFiller> host_filler(const FillPlan& plan) {
  return std::make_unique<HostFiller>(plan);
}

}  // namespace lft::hf
