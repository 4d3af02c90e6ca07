#include "models/llama/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "models/ops/core/copy_to_device.h"
#include "models/ops/elementwise/rope.h"

namespace lft::llama {
namespace {

/// The axis (time, height, width) that rotates each pair: int64 [pairs].
at::Tensor axes_of_pairs(const LlamaConfig& config) {
  const std::vector<int64_t>& section = config.mrope_section;
  std::vector<int64_t> axes(static_cast<size_t>(config.rotary_dim() / 2), 0);
  for (int64_t pair = 0; pair < std::ssize(axes); ++pair) {
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

at::Tensor rotated(const at::Tensor& x_bthe, const Rotation& by) {
  const int64_t turned = 2 * by.cos.size(-1), rest = x_bthe.size(3) - turned;
  if (rest == 0) return ops::rope(x_bthe, by.cos, by.sin);
  const std::vector<at::Tensor> parts = x_bthe.split_with_sizes({turned, rest}, 3);
  return at::cat({ops::rope(parts[0], by.cos, by.sin), parts[1]}, 3);
}

Rotation RotaryAngles::table(int64_t count, int64_t length, bool local, at::Device device) const {
  const RopeScaling& scaling = local ? config_.local_rope_scaling : config_.rope_scaling;
  const double theta = local ? config_.local_rope_theta : config_.rope_theta;
  const at::Tensor angles =
      at::outer(at::arange(count, at::kLong).to(at::kFloat),
                scaled_frequencies(scaling, theta, config_.rotary_dim(), length))
          .unsqueeze(0);
  const auto scaled = [&](const at::Tensor& x) {
    return (scaling.attention_factor == 1 ? x : x * scaling.attention_factor).to(device);
  };
  return {scaled(angles.cos()), scaled(angles.sin())};
}

void RotaryAngles::reserve(int64_t count, at::Device device) {
  if (table_.cos.defined() && table_.cos.size(1) >= count && table_.cos.device() == device) return;
  const int64_t length = (count + 511) / 512 * 512;
  table_ = table(length, 0, false, device);
  if (!config_.slides.empty()) local_table_ = table(length, 0, true, device);
}

Rotation RotaryAngles::at_positions(const Rotation& table, const at::Tensor& positions_3bt) const {
  const at::Tensor axes = ops::copy_to_device(axes_of_pairs(config_), positions_3bt.device());
  const at::Tensor turned =
      positions_3bt.index_select(0, axes).permute({1, 2, 0});  // [b, t, e / 2], of each pair
  const auto at_turned = [&](const at::Tensor& table_1te) {
    return table_1te[0].gather(0, turned.flatten(0, 1)).view(turned.sizes());
  };
  return {at_turned(table.cos), at_turned(table.sin)};
}

Rotation RotaryAngles::by_length(const DecoderInput& input, const KvCache* held, bool local) const {
  const at::Device device = input.embeds_btd.device();
  std::vector<at::Tensor> cos, sin;
  const auto add = [&](const Rotation& one) {
    cos.push_back(one.cos);
    sin.push_back(one.sin);
  };
  if (held != nullptr) {
    for (const int64_t next : held->next_positions()) {
      const Rotation all = table(next + 1, next + 1, local, device);
      add({all.cos.narrow(1, next, 1), all.sin.narrow(1, next, 1)});
    }
    return {at::cat(cos), at::cat(sin)};
  }
  /// Adds `count` positions of row `row` from `first` on, `real` of which are not padding.
  const auto add_sequence = [&](int64_t row, int64_t first, int64_t count, int64_t real) {
    if (!input.positions_3bt.defined()) return add(table(count, real, local, device));
    const at::Tensor places = input.positions_3bt.narrow(1, row, 1).narrow(2, first, count);
    const int64_t most = count == 0 ? 0 : places.max().item<int64_t>() + 1,
                  length = real == 0 ? 0 : places.narrow(2, 0, real).max().item<int64_t>() + 1;
    add(at_positions(table(most, length, local, device), places));
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

Rotation RotaryAngles::of(const DecoderInput& input, const KvCache* held, bool local) {
  const at::Device device = input.embeds_btd.device();
  if ((local ? config_.local_rope_scaling : config_.rope_scaling).follows_length())
    return by_length(input, held, local);
  const std::vector<int64_t> next =
      held != nullptr ? held->next_positions() : std::vector<int64_t>();
  reserve(held != nullptr
              ? std::max(held->longest() + 1, *std::max_element(next.begin(), next.end()) + 1)
          : input.packed ? input.packed->longest()
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
  if (input.positions_3bt.defined()) return at_positions(table, input.positions_3bt);
  if (input.packed) return at_places(ops::copy_to_device(input.packed->positions(), device));
  const int64_t positions = input.embeds_btd.size(1);
  return {table.cos.narrow(1, 0, positions), table.sin.narrow(1, 0, positions)};
}

}  // namespace lft::llama
