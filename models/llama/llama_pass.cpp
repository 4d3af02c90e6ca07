// What a pass of the decoder begins with: the angles of its positions, and what they see.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "models/base/dims.h"
#include "models/llama/attention_mask.h"
#include "models/llama/llama.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/precision.h"

namespace lft::llama {
namespace {

int64_t most_held(const KvCache& cache) {
  return *std::max_element(cache.lengths.begin(), cache.lengths.end());
}

/// Of the token that comes next in each row.
std::vector<int64_t> next_positions(const KvCache& cache) {
  std::vector<int64_t> next = cache.lengths;
  for (size_t row = 0; row < cache.offsets.size(); ++row) next[row] += cache.offsets[row];
  return next;
}

/// Which of a position's three numbers turns a pair: int64 [e / 2].
at::Tensor axes_of_pairs(const LlamaConfig& config) {
  const std::vector<int64_t>& section = config.mrope_section;
  std::vector<int64_t> axes(static_cast<size_t>(config.head_dim / 2), 0);
  for (int64_t pair = 0; pair < config.head_dim / 2; ++pair) {
    int64_t& axis = axes[static_cast<size_t>(pair)];
    if (config.mrope_interleaved) {
      axis = pair / 3 < section[static_cast<size_t>(pair % 3)] ? pair % 3 : 0;
    } else {
      axis = pair < section[0] ? 0 : pair < section[0] + section[1] ? 1 : 2;
    }
  }
  return at::tensor(axes, at::kLong);
}

}  // namespace

Rotation LlamaModelImpl::table(int64_t count, int64_t length, bool local, at::Device device) const {
  const RopeScaling& scaling = local ? config_.local_rope_scaling : config_.rope_scaling;
  const double theta = local ? config_.local_rope_theta : config_.rope_theta;
  const at::Tensor angles = at::outer(at::arange(count, at::kLong).to(at::kFloat),
                                      scaled_frequencies(scaling, theta, config_.head_dim, length))
                                .unsqueeze(0);
  const auto scaled = [&](const at::Tensor& x) {
    return (scaling.attention_factor == 1 ? x : x * scaling.attention_factor).to(device);
  };
  return {scaled(angles.cos()), scaled(angles.sin())};
}

void LlamaModelImpl::reserve_positions(int64_t count, at::Device device) {
  if (table_.cos.defined() && table_.cos.size(1) >= count && table_.cos.device() == device) return;
  const int64_t length = (count + 511) / 512 * 512;
  table_ = table(length, 0, false, device);
  if (!config_.slides.empty()) local_table_ = table(length, 0, true, device);
}

Rotation LlamaModelImpl::rotation_at(const Rotation& table, const at::Tensor& positions_3bt) const {
  const at::Tensor axes = ops::copy_to_device(axes_of_pairs(config_), positions_3bt.device());
  const at::Tensor turned =
      positions_3bt.index_select(0, axes).permute({1, 2, 0});  // [b, t, e / 2], of each pair
  const auto at_turned = [&](const at::Tensor& table_1te) {
    return table_1te[0].gather(0, turned.flatten(0, 1)).view(turned.sizes());
  };
  return {at_turned(table.cos), at_turned(table.sin)};
}

Rotation LlamaModelImpl::rotation_by_length(const DecoderInput& input, const KvCache* held,
                                            bool local) const {
  const at::Device device = input.embeds_btd.device();
  std::vector<at::Tensor> cos, sin;
  const auto add = [&](const Rotation& one) {
    cos.push_back(one.cos);
    sin.push_back(one.sin);
  };
  if (held != nullptr) {
    for (const int64_t next : next_positions(*held)) {
      const Rotation all = table(next + 1, next + 1, local, device);
      add({all.cos.narrow(1, next, 1), all.sin.narrow(1, next, 1)});
    }
    return {at::cat(cos), at::cat(sin)};
  }
  /// `count` places of row `row` from `first` on, `real` of which are no padding.
  const auto add_sequence = [&](int64_t row, int64_t first, int64_t count, int64_t real) {
    if (!input.positions_3bt.defined()) return add(table(count, real, local, device));
    const at::Tensor places = input.positions_3bt.narrow(1, row, 1).narrow(2, first, count);
    const int64_t most = count == 0 ? 0 : places.max().item<int64_t>() + 1,
                  length = real == 0 ? 0 : places.narrow(2, 0, real).max().item<int64_t>() + 1;
    add(rotation_at(table(most, length, local, device), places));
  };
  if (input.packed) {
    const std::vector<int64_t>& starts = input.packed->starts;
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      add_sequence(0, starts[s], starts[s + 1] - starts[s], starts[s + 1] - starts[s]);
    return {at::cat(cos, 1), at::cat(sin, 1)};
  }
  const int64_t t = input.embeds_btd.size(1);
  for (int64_t row = 0; row < input.embeds_btd.size(0); ++row)
    add_sequence(row, 0, t, input.lengths.empty() ? t : input.lengths[static_cast<size_t>(row)]);
  return {at::cat(cos), at::cat(sin)};
}

Rotation LlamaModelImpl::rotation_of(const DecoderInput& input, const KvCache* held, bool local) {
  const at::Device device = input.embeds_btd.device();
  if ((local ? config_.local_rope_scaling : config_.rope_scaling).follows_length())
    return rotation_by_length(input, held, local);
  const std::vector<int64_t> next =
      held != nullptr ? next_positions(*held) : std::vector<int64_t>();
  reserve_positions(held != nullptr ? std::max(most_held(*held) + 1,
                                               *std::max_element(next.begin(), next.end()) + 1)
                    : input.packed  ? input.packed->longest()
                                    : input.embeds_btd.size(1),
                    device);
  const Rotation& table = local ? local_table_ : table_;
  const auto at_places = [&](const at::Tensor& places) -> Rotation {
    return {table.cos.index_select(1, places), table.sin.index_select(1, places)};
  };
  if (held != nullptr) {
    const Rotation turned = at_places(at::tensor(next, at::kLong).to(device));
    return {turned.cos.transpose(0, 1), turned.sin.transpose(0, 1)};
  }
  if (input.positions_3bt.defined()) return rotation_at(table, input.positions_3bt);
  if (input.packed) return at_places(ops::copy_to_device(input.packed->positions(), device));
  const int64_t positions = input.embeds_btd.size(1);
  return {table.cos.narrow(1, 0, positions), table.sin.narrow(1, 0, positions)};
}

void LlamaModelImpl::add_masks(const DecoderInput& input, bool local, LlamaPass& pass) const {
  const at::Tensor& embeds_btd = input.embeds_btd;
  const at::ScalarType type = ops::op_dtype(ops::Op::kLinear, embeds_btd.scalar_type());
  const auto mask = [&](const at::Tensor& blocks_nt, int64_t positions) {
    return attention_mask({blocks_nt, local ? config_.window : 0}, positions, type,
                          embeds_btd.device());
  };
  if (!input.packed) {
    pass.mask = mask(input.blocks_bt, embeds_btd.size(1));
    return;
  }
  const std::vector<int64_t>& starts = input.packed->starts;
  bool any = false;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t count = starts[s + 1] - starts[s];
    const at::Tensor blocks =
        input.blocks_bt.defined() ? input.blocks_bt.narrow(1, starts[s], count) : at::Tensor();
    pass.packed_masks.push_back(mask(blocks, count));
    any = any || pass.packed_masks.back().defined();
  }
  if (!any) pass.packed_masks.clear();
}

LlamaPass LlamaModelImpl::make_pass(const DecoderInput& input, KvCache* cache, bool continues,
                                    bool local) {
  LlamaPass pass;
  pass.cache = cache;
  pass.packed = input.packed;
  pass.rotation = rotation_of(input, continues ? cache : nullptr, local);
  if (config_.query_scalar > 0 && config_.query_scalar != static_cast<double>(config_.head_dim)) {
    const double factor = std::sqrt(static_cast<double>(config_.head_dim) / config_.query_scalar);
    pass.queries = {pass.rotation.cos * factor, pass.rotation.sin * factor};
  }
  if (!continues) {
    add_masks(input, local, pass);
    return pass;
  }
  const at::Device device = input.embeds_btd.device();
  pass.cache_places_b = at::tensor(cache->lengths, at::kLong).to(device);
  pass.cache_rows_b = at::arange(pass.cache_places_b.size(0), pass.cache_places_b.options());
  const at::Tensor positions = pass.cache_places_b.unsqueeze(1);
  // Masked, what lies after a row's last position has a weight of exactly zero.
  const at::Tensor keys =
      at::arange(whole_key_steps(most_held(*cache) + 1), positions.options()).unsqueeze(0);
  at::Tensor seen = keys <= positions;
  if (local) seen = seen.bitwise_and(keys > positions - config_.window);
  pass.cache_mask = seen.unsqueeze(1).unsqueeze(1);
  return pass;
}

}  // namespace lft::llama
