#include "models/llama/pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/llama/attention_mask.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/precision.h"

namespace lft::llama {
namespace {

/// Adds the masks of sequences that start in this pass.
void add_masks(const LlamaConfig& config, const DecoderInput& input, bool local, LlamaPass& pass) {
  const at::Tensor& embeds_btd = input.embeds_btd;
  const at::ScalarType type = ops::op_dtype(ops::Op::kLinear, embeds_btd.scalar_type());
  const auto mask = [&](const at::Tensor& blocks_nt, int64_t positions) {
    return attention_mask({blocks_nt, local ? config.window : 0}, positions, type,
                          embeds_btd.device());
  };
  if (!input.packed) {
    pass.mask = mask(input.blocks_bt, embeds_btd.size(1));
    return;
  }
  const ops::PackedSequences& packed = *input.packed;
  const at::Tensor blocks_t = input.blocks_bt.defined()
                                  ? ops::with_shared(input.blocks_bt.squeeze(0), packed)
                                  : at::Tensor();
  const std::vector<int64_t> starts = packed.whole_starts();
  bool any = false;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t count = starts[s + 1] - starts[s];
    const at::Tensor blocks =
        blocks_t.defined() ? blocks_t.narrow(0, starts[s], count).unsqueeze(0) : at::Tensor();
    pass.packed_masks.push_back(mask(blocks, count));
    any = any || pass.packed_masks.back().defined();
  }
  if (!any) pass.packed_masks.clear();
}

/// The sequences of the recurrent layers. `continues`: the cache contains the previous positions.
RecurrentPass recurrent_pass(const LlamaConfig& config, const DecoderInput& input, KvCache* cache,
                             bool continues) {
  RecurrentPass pass;
  pass.cache = cache;
  if (input.packed || config.recurrent.empty()) {
    pass.sequences = input.packed;
    if (!input.packed || input.packed->shared.empty()) return pass;
    auto whole = std::make_shared<ops::PackedSequences>();
    whole->starts = input.packed->whole_starts();
    whole->starts_s1 = input.packed->whole_starts_s1;
    pass.shared = std::exchange(pass.sequences, std::move(whole));
    return pass;
  }
  const at::Device device = input.embeds_btd.device();
  const int64_t b = input.embeds_btd.size(0), t = input.embeds_btd.size(1);
  // Padding follows a row's positions, so that it changes only the states after it.
  const bool pads = cache != nullptr && !continues &&
                    std::ranges::any_of(cache->lengths, [&](int64_t length) { return length < t; });
  auto sequences = std::make_shared<ops::PackedSequences>();
  std::vector<at::Tensor> places;
  sequences->starts = {0};
  for (int64_t row = 0; row < b; ++row) {
    const int64_t length = pads ? cache->lengths[static_cast<size_t>(row)] : t;
    sequences->starts.push_back(sequences->starts.back() + length);
    if (pads) places.push_back(at::arange(row * t, row * t + length, at::kLong));
  }
  if (pads) pass.places_n = ops::copy_to_device(at::cat(places), device);
  if (!device.is_cpu())
    sequences->starts_s1 = ops::copy_to_device(at::tensor(sequences->starts, at::kInt), device);
  pass.sequences = std::move(sequences);
  return pass;
}

}  // namespace

at::Tensor keep_rows(const at::Tensor& x_btd, const at::Tensor& rows_k) {
  return rows_k.defined() ? x_btd.flatten(0, 1).index_select(0, rows_k) : x_btd;
}

LlamaPass make_pass(const LlamaConfig& config, const DecoderInput& input, KvCache* cache,
                    bool local, RotaryAngles& angles) {
  const bool continues = cache != nullptr && !cache->empty();
  LlamaPass pass;
  pass.cache = cache;
  pass.packed = input.packed;
  pass.recurrent = recurrent_pass(config, input, cache, continues);
  pass.routing = layers::routing();
  pass.rotation = angles.of(input, continues ? cache : nullptr, local);
  if (config.query_scalar > 0 && config.query_scalar != static_cast<double>(config.head_dim)) {
    const double factor = std::sqrt(static_cast<double>(config.head_dim) / config.query_scalar);
    pass.queries = {pass.rotation.cos * factor, pass.rotation.sin * factor};
  }
  if (!continues) {
    add_masks(config, input, local, pass);
    return pass;
  }
  const at::Device device = input.embeds_btd.device();
  const at::Tensor positions = at::tensor(cache->lengths, at::kLong).to(device).unsqueeze(1);
  pass.cache_places = {.rows_b = at::arange(positions.size(0), positions.options()),
                       .places_b = positions.squeeze(1),
                       .seen = whole_key_steps(cache->longest() + 1)};
  // Masked positions after the end of a row have a weight of exactly zero.
  const at::Tensor keys = at::arange(pass.cache_places.seen, positions.options()).unsqueeze(0);
  at::Tensor seen = keys <= positions;
  if (local) seen = seen.bitwise_and(keys > positions - config.window);
  pass.cache_mask = seen.unsqueeze(1).unsqueeze(1);
  return pass;
}

}  // namespace lft::llama
