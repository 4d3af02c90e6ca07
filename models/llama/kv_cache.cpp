#include "models/llama/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "models/ops/core/copy_to_device.h"

namespace lft::llama {
namespace {

using Layers = std::vector<at::Tensor>;

/// `join` of the layers that are defined.
template <class Join>
Layers joined(const Layers& first, const Layers& second, const Join& join) {
  Layers out(first.size());
  for (size_t layer = 0; layer < first.size(); ++layer)
    if (first[layer].defined()) out[layer] = join(first[layer], second[layer]);
  return out;
}

at::Tensor joined_keys(const at::Tensor& first, const at::Tensor& second) {
  const int64_t capacity = std::max(first.size(2), second.size(2));
  return at::cat({with_capacity(first, capacity), with_capacity(second, capacity)});
}

at::Tensor joined_states(const at::Tensor& first, const at::Tensor& second) {
  return at::cat({first, second});
}

/// `take` of the layers that are defined, each of which is freed then.
template <class Take>
Layers taken(Layers& layers, const Take& take) {
  Layers out;
  for (at::Tensor& layer : layers)
    out.push_back(layer.defined() ? take(std::exchange(layer, {})) : at::Tensor());
  return out;
}

at::Device device_of(const KvCache& cache) {
  const auto defined = [](const at::Tensor& keys) { return keys.defined(); };
  return std::ranges::find_if(cache.keys, defined)->device();
}

/// Writes to places that all differ, for which PyTorch's deterministic index_put_ on a GPU would
/// sort them first.
class DistinctPlaces {
 public:
  explicit DistinctPlaces(at::Device device)
      : sorts_(!device.is_cpu() && context_.deterministicAlgorithms()),
        warns_(context_.deterministicAlgorithmsWarnOnly()) {
    if (sorts_) context_.setDeterministicAlgorithms(false, warns_);
  }
  ~DistinctPlaces() {
    if (sorts_) context_.setDeterministicAlgorithms(true, warns_);
  }
  DistinctPlaces(const DistinctPlaces&) = delete;

 private:
  at::Context& context_ = at::globalContext();
  const bool sorts_, warns_;
};

/// Makes room for `needed` positions of keys or values like `like_bhte`.
void grow(int64_t needed, const at::Tensor& like_bhte, at::Tensor* held_bhse) {
  if (held_bhse->defined() && held_bhse->size(2) >= needed) return;
  const int64_t capacity = whole_key_steps(
      held_bhse->defined() ? std::max(needed, held_bhse->size(2) * 2) : needed + 64);
  *held_bhse =
      with_capacity(held_bhse->defined() ? *held_bhse : like_bhte.narrow(2, 0, 0), capacity);
}

}  // namespace

std::vector<int64_t> KvCache::next_positions() const {
  std::vector<int64_t> next = lengths;
  for (size_t row = 0; row < offsets.size(); ++row) next[row] += offsets[row];
  return next;
}

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

void store_first(const at::Tensor& fresh_bthe, at::Tensor* held_bhse) {
  const at::Tensor fresh = fresh_bthe.transpose(1, 2);
  grow(fresh.size(2), fresh, held_bhse);
  held_bhse->narrow(2, 0, fresh.size(2)).copy_(fresh);
}

at::Tensor store_next(const at::Tensor& fresh_bthe, const CachePlaces& places,
                      at::Tensor* held_bhse) {
  grow(places.seen, fresh_bthe.transpose(1, 2), held_bhse);
  const DistinctPlaces distinct(held_bhse->device());
  held_bhse->index_put_({places.rows_b, at::indexing::Slice(), places.places_b},
                        fresh_bthe.squeeze(1));
  return held_bhse->narrow(2, 0, places.seen);
}

void clear_after_lengths(KvCache& cache) {
  for (size_t layer = 0; layer < cache.keys.size(); ++layer) {
    for (const at::Tensor& held_bhse : {cache.keys[layer], cache.values[layer]}) {
      if (!held_bhse.defined()) continue;
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
  KvCache out{.keys = joined(cache.keys, more.keys, joined_keys),
              .values = joined(cache.values, more.values, joined_keys),
              .states = joined(cache.states, more.states, joined_states),
              .inputs = joined(cache.inputs, more.inputs, joined_states),
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
  const at::Tensor kept = ops::copy_to_device(at::tensor(rows, at::kLong), device_of(cache));
  const auto take_keys = [&](const at::Tensor& held) {
    const int64_t capacity = std::min(held.size(2), whole_key_steps(longest + 1));
    return held.narrow(2, 0, capacity).index_select(0, kept);
  };
  const auto take_states = [&](const at::Tensor& held) { return held.index_select(0, kept); };
  out.keys = taken(cache.keys, take_keys);
  out.values = taken(cache.values, take_keys);
  out.states = taken(cache.states, take_states);
  out.inputs = taken(cache.inputs, take_states);
  return out;
}

}  // namespace lft::llama
