#include "models/llama/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "models/ops/core/copy_to_device.h"

namespace lft::llama {
namespace {

std::vector<at::Tensor> joined(const std::vector<at::Tensor>& first,
                               const std::vector<at::Tensor>& second) {
  std::vector<at::Tensor> out;
  for (size_t layer = 0; layer < first.size(); ++layer) {
    const int64_t capacity = std::max(first[layer].size(2), second[layer].size(2));
    out.push_back(
        at::cat({with_capacity(first[layer], capacity), with_capacity(second[layer], capacity)}));
  }
  return out;
}

}  // namespace

int64_t whole_key_steps(int64_t keys) {
  constexpr int64_t kStep = 256;
  return (keys + kStep - 1) / kStep * kStep;
}

at::Tensor with_capacity(const at::Tensor& held_bhse, int64_t capacity) {
  if (held_bhse.size(2) >= capacity) return held_bhse;
  at::Tensor larger = at::zeros({held_bhse.size(0), held_bhse.size(1), capacity, held_bhse.size(3)},
                                held_bhse.options());
  larger.narrow(2, 0, held_bhse.size(2)).copy_(held_bhse);
  return larger;
}

void clear_after_lengths(KvCache& cache) {
  for (size_t layer = 0; layer < cache.keys.size(); ++layer) {
    for (const at::Tensor& held_bhse : {cache.keys[layer], cache.values[layer]}) {
      for (int64_t row = 0; row < held_bhse.size(0); ++row) {
        const int64_t length = cache.lengths.at(static_cast<size_t>(row));
        held_bhse[row].narrow(1, length, held_bhse.size(2) - length).zero_();
      }
    }
  }
}

KvCache join_rows(const KvCache& cache, const KvCache& more) {
  if (cache.empty()) return more;
  if (more.empty()) return cache;
  KvCache out{.keys = joined(cache.keys, more.keys),
              .values = joined(cache.values, more.values),
              .lengths = cache.lengths,
              .offsets = cache.offsets};
  out.lengths.insert(out.lengths.end(), more.lengths.begin(), more.lengths.end());
  if (cache.offsets.empty() && more.offsets.empty()) return out;
  out.offsets.resize(cache.lengths.size(), 0);
  out.offsets.insert(out.offsets.end(), more.offsets.begin(), more.offsets.end());
  out.offsets.resize(out.lengths.size(), 0);
  return out;
}

KvCache keep_rows(KvCache cache, const std::vector<int64_t>& rows) {
  if (rows.empty() || cache.empty()) return {};
  KvCache out;
  for (const int64_t row : rows) {
    out.lengths.push_back(cache.lengths.at(static_cast<size_t>(row)));
    if (!cache.offsets.empty()) out.offsets.push_back(cache.offsets.at(static_cast<size_t>(row)));
  }
  const int64_t longest = *std::max_element(out.lengths.begin(), out.lengths.end());
  const at::Tensor kept =
      ops::copy_to_device(at::tensor(rows, at::kLong), cache.keys.front().device());
  const auto take = [&](at::Tensor& held) {
    const int64_t capacity = std::min(held.size(2), whole_key_steps(longest + 1));
    return std::exchange(held, {}).narrow(2, 0, capacity).index_select(0, kept);
  };
  for (at::Tensor& keys : cache.keys) out.keys.push_back(take(keys));
  for (at::Tensor& values : cache.values) out.values.push_back(take(values));
  return out;
}

}  // namespace lft::llama
