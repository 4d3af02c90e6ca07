#include "models/ops/weight/expert_weight.h"

#include <ATen/Functions.h>

namespace lft::ops {

ExpertStorage::ExpertStorage(std::vector<c10::intrusive_ptr<CodedWeight>> of)
    : experts(std::move(of)) {
  out = static_cast<int64_t>(experts.size()) * experts.front()->out;
  in = experts.front()->in;
}

std::vector<std::pair<std::string, at::Tensor>> ExpertStorage::parts() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (size_t e = 0; e < experts.size(); ++e) {
    for (const auto& [name, part] : experts[e]->parts())
      all.emplace_back(name + "_" + std::to_string(e), part);
  }
  return all;
}

c10::intrusive_ptr<CodedWeight> ExpertStorage::with(const std::vector<at::Tensor>& parts) const {
  std::vector<c10::intrusive_ptr<CodedWeight>> others;
  auto next = parts.begin();
  for (const auto& expert : experts) {
    const auto count = static_cast<std::ptrdiff_t>(expert->parts().size());
    others.push_back(expert->with({next, next + count}));
    next += count;
  }
  return c10::make_intrusive<ExpertStorage>(std::move(others));
}

at::Tensor ExpertStorage::dense(at::ScalarType dtype) const {
  std::vector<at::Tensor> all;
  for (const auto& expert : experts) all.push_back(expert->dense(dtype));
  return at::cat(all);
}

at::Tensor expert_rows(const at::Tensor& all, int64_t expert, int64_t experts) {
  const int64_t rows = all.size(0) / experts;
  return all.narrow(0, expert * rows, rows);
}

Weight expert_weight(const Weight& weight, int64_t expert, int64_t experts) {
  if (!weight.coded()) return expert_rows(weight.dense(), expert, experts);
  const auto& all = static_cast<const ExpertStorage&>(*weight.coded());
  return all.experts[static_cast<size_t>(expert)];
}

c10::intrusive_ptr<CodedWeight> quantize_experts(const at::Tensor& weight, int64_t experts,
                                                 BaseStorage storage, at::Device device) {
  std::vector<c10::intrusive_ptr<CodedWeight>> all;
  for (const at::Tensor& expert : weight.chunk(experts))
    all.push_back(quantize(expert, storage, device));
  return c10::make_intrusive<ExpertStorage>(std::move(all));
}

}  // namespace lft::ops
