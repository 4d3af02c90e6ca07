#include "src/hf/file_weight.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/ops/core/few_rows.h"
#include "models/ops/core/parallel.h"
#include "src/hf/expert_slices.h"
#include "src/hf/fill_weights.h"
#include "src/hf/weights.h"

namespace lft::hf {
namespace {

constexpr int64_t kPieceBytes = 1 << 19;  // bytes of the converted weight

}  // namespace

at::Tensor ReadBuffers::take(int64_t numel, at::TensorOptions options) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const at::Tensor& buffer) {
    return buffer.storage().use_count() == 1 && buffer.numel() >= numel &&
           buffer.dtype() == options.dtype();
  };
  auto found = std::ranges::find_if(buffers_, fits);
  if (found == buffers_.end()) {
    std::erase_if(buffers_,
                  [](const at::Tensor& buffer) { return buffer.storage().use_count() == 1; });
    found = buffers_.insert(buffers_.end(), at::empty({numel}, options));
  }
  return found->narrow(0, 0, numel);
}

FileWeight::FileWeight(std::shared_ptr<const ModelDir> dir, const std::string& name,
                       const std::vector<int64_t>& shape_oi, at::TensorOptions options,
                       std::shared_ptr<ReadBuffers> buffers, int64_t expert, int64_t experts)
    : dir_(std::move(dir)), name_(name), options_(options), buffers_(std::move(buffers)) {
  out = shape_oi[0];
  in = shape_oi[1];
  if (expert >= 0) {
    stored_ = expert_parts(*dir_, name_, {experts * out, in}, expert, experts);
  } else {
    const ModelDir::Place& place = dir_->tensors.at(name_);
    stored_.parts = {{&dir_->files[place.file], dir_->info(place)}};
  }
}

c10::intrusive_ptr<ops::CodedWeight> FileWeight::with(const std::vector<at::Tensor>&) const {
  return c10::make_intrusive<FileWeight>(*this);
}

at::Tensor FileWeight::dense(at::ScalarType dtype) const {
  const int64_t columns = stored_.transposed ? out : in;
  const at::Tensor weight = buffers_->take(out * in, options_).view({-1, columns});
  std::vector<WeightJob> jobs;
  int64_t row = 0;
  for (const auto& [file, info] : stored_.parts) {
    jobs.push_back({file, &info, name_, weight.narrow(0, row, info.shape.front())});
    row += info.shape.front();
  }
  fill_weights(jobs);
  return stored_.transposed ? weight.t().to(dtype).contiguous() : weight.to(dtype);
}

at::Tensor FileWeight::product(const at::Tensor& x, const at::Tensor& bias) const {
  const bool in_rows = stored_.parts.size() == 1 && !stored_.transposed;
  if (!in_rows || !ops::takes_few_rows(x)) return CodedWeight::product(x, bias);
  const io::SafetensorsFile* const from = stored_.parts.front().file;
  const io::TensorInfo* const rows_info = &stored_.parts.front().info;
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  const int64_t rows = std::max<int64_t>(1, kPieceBytes / (in * x.element_size()));
  ops::parallel_for((out + rows - 1) / rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * rows; first < std::min(out, end * rows); first += rows) {
      const int64_t count = std::min(rows, out - first);
      const at::Tensor piece = read_rows(*from, *rows_info, first, count).to(x.scalar_type());
      const at::Tensor own =
          bias.defined() ? bias.narrow(0, first, count).to(x.scalar_type()) : bias;
      y.narrow(1, first, count).copy_(ops::few_rows_product(x, piece.t(), own));
    }
  });
  // A non-finite product may come from the weight itself; dense() reports that.
  return y.isfinite().all().item<bool>() ? y : CodedWeight::product(x, bias);
}

HeldWeight::HeldWeight(at::Tensor weight_oi) : weight_(std::move(weight_oi)) {
  out = weight_.size(0);
  in = weight_.size(1);
}

c10::intrusive_ptr<ops::CodedWeight> HeldWeight::with(const std::vector<at::Tensor>&) const {
  return c10::make_intrusive<HeldWeight>(*this);
}

}  // namespace lft::hf
