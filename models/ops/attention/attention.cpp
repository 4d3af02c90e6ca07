#include "models/ops/attention/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/base/dims.h"
#include "models/ops/attention/cudnn_attention.h"
#include "models/ops/attention/tiled_attention.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/gemm.h"

namespace lft::ops {
namespace {

/// [n, g, e] -> [1, h, n, e], heads repeated.
at::Tensor heads_first(const at::Tensor& x_nge, int64_t heads) {
  const int64_t repeat = heads / x_nge.size(1);
  const at::Tensor x = x_nge.unsqueeze(0).transpose(1, 2);
  return repeat == 1 ? x : x.unsqueeze(2).expand({-1, -1, repeat, -1, -1}).flatten(1, 2);
}

/// FlashAttention-2, which requires head sizes that are multiples of 8. Zeros appended to a head
/// change neither scores nor values. A sequence's queries are its last positions.
at::Tensor flash_attention(const at::Tensor& q_the, const at::Tensor& k_tge,
                           const at::Tensor& v_tge, const PackedSequences& sequences, bool causal) {
  const int64_t size = q_the.size(2), missing = (8 - size % 8) % 8, longest = sequences.longest();
  const auto padded = [missing](const at::Tensor& x) {
    return missing == 0 ? x : at::constant_pad_nd(x, {0, missing});
  };
  const at::Tensor& starts = sequences.starts_s1;
  const at::Tensor mixed = std::get<0>(at::_flash_attention_forward(
      padded(q_the), padded(with_shared(k_tge, sequences)), padded(with_shared(v_tge, sequences)),
      starts, sequences.shared.empty() ? starts : sequences.whole_starts_s1, longest, longest,
      /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false,
      /*scale=*/1 / std::sqrt(static_cast<double>(size))));
  return missing == 0 ? mixed : mixed.narrow(2, 0, size);
}

}  // namespace

bool widens_attention(at::ScalarType dtype, const at::Device& device) {
  if (!widens_products(dtype, device)) return false;
  const at::Tensor head = at::empty({1, 1, 1, 2}, dtype);
  return !fits_tiles(head, head, /*causal=*/false);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask, bool causal) {
  expect_dims(q, "q", {{"b"}, {"h"}, {"t"}, {"e"}});
  expect_dims(k, "k", {{"b", q.size(0)}, {"h", q.size(1)}, {"s"}, {"e", q.size(3)}});
  expect_dims(v, "v", {{"b", q.size(0)}, {"h", q.size(1)}, {"s", k.size(2)}, {"e", q.size(3)}});
  if (!mask.defined() && fits_tiles(q, k, causal)) return tiled_attention(q, k, v, causal);
  causal = causal && !mask.defined();
  std::optional<at::Tensor> seen = mask.defined() ? std::make_optional(mask) : std::nullopt;
  if (!widens_products(q))
    return at::scaled_dot_product_attention(q, k, v, seen, /*dropout_p=*/0.0, causal);
  if (seen && seen->scalar_type() != at::kBool) seen = seen->to(at::kFloat);
  return at::scaled_dot_product_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat),
                                          seen, /*dropout_p=*/0.0, causal)
      .to(q.scalar_type());
}

int64_t PackedSequences::length(size_t sequence) const {
  return shared_by(sequence) + starts[sequence + 1] - starts[sequence];
}

int64_t PackedSequences::longest() const {
  int64_t longest = at_least;
  for (size_t s = 0; s + 1 < starts.size(); ++s) longest = std::max(longest, length(s));
  return longest;
}

at::Tensor PackedSequences::positions() const {
  if (positions_t.defined()) return positions_t;
  at::Tensor positions = at::empty({starts.back()}, at::kLong);
  int64_t* out = positions.mutable_data_ptr<int64_t>();
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    for (int64_t i = shared_by(s); i < length(s); ++i) *out++ = i;
  }
  return positions;
}

std::vector<int64_t> PackedSequences::whole_starts() const {
  std::vector<int64_t> whole = {0};
  for (size_t s = 0; s + 1 < starts.size(); ++s) whole.push_back(whole.back() + length(s));
  return whole;
}

at::Tensor with_shared(const at::Tensor& x, const PackedSequences& sequences) {
  if (sequences.shared.empty()) return x;
  std::vector<at::Tensor> parts;
  for (size_t s = 0; s + 1 < sequences.starts.size(); ++s) {
    if (const int64_t shared = sequences.shared[s]; shared > 0)
      parts.push_back(x.narrow(0, sequences.starts[s - 1], shared));
    parts.push_back(
        x.narrow(0, sequences.starts[s], sequences.starts[s + 1] - sequences.starts[s]));
  }
  return at::cat(parts);
}

at::Tensor without_shared(const at::Tensor& x, const PackedSequences& sequences) {
  if (sequences.shared.empty()) return x;
  const std::vector<int64_t> whole = sequences.whole_starts();
  std::vector<at::Tensor> parts;
  for (size_t s = 0; s + 1 < whole.size(); ++s) {
    const int64_t shared = sequences.shared[s];
    parts.push_back(x.narrow(0, whole[s] + shared, whole[s + 1] - whole[s] - shared));
  }
  return at::cat(parts);
}

at::Tensor packed_attention(const at::Tensor& q_the, const at::Tensor& k_tge,
                            const at::Tensor& v_tge, const PackedSequences& sequences, bool causal,
                            const std::vector<at::Tensor>& masks) {
  const int64_t t = q_the.size(0), heads = q_the.size(1);
  expect_dims(q_the, "q", {{"t", sequences.starts.back()}, {"h"}, {"e"}});
  expect_dims(k_tge, "k", {{"t", t}, {"g"}, {"e", q_the.size(2)}});
  expect_dims(v_tge, "v", {{"t", t}, {"g", k_tge.size(1)}, {"e", q_the.size(2)}});
  if (runs_kernels(q_the.device()) && q_the.scalar_type() != at::kFloat && masks.empty()) {
    // A decoder has few shapes; a vision tower's windows would need a plan for every image.
    std::optional<at::Tensor> mixed;
    if (causal && sequences.shared.empty())
      mixed = cudnn_attention(q_the, k_tge, v_tge, sequences, causal);
    return mixed ? *mixed : flash_attention(q_the, k_tge, v_tge, sequences, causal);
  }
  const at::Tensor q = with_shared(q_the, sequences), k = with_shared(k_tge, sequences),
                   v = with_shared(v_tge, sequences);
  const std::vector<int64_t> starts = sequences.whole_starts();
  std::vector<at::Tensor> mixed;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const auto part = [&](const at::Tensor& x) {
      return heads_first(x.narrow(0, starts[s], starts[s + 1] - starts[s]), heads);
    };
    const at::Tensor mask = masks.empty() ? at::Tensor() : masks[s];
    mixed.push_back(attention(part(q), part(k), part(v), mask, causal).squeeze(0).transpose(0, 1));
  }
  return without_shared(mixed.size() == 1 ? mixed[0] : at::cat(mixed, 0), sequences);
}

}  // namespace lft::ops
