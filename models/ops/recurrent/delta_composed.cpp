#include "models/ops/recurrent/delta_composed.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lft::ops {
namespace {

constexpr int64_t kDeltaChunk = 64;

at::Tensor unit_rows(const at::Tensor& x) {
  return x * at::rsqrt((x * x).sum(-1, /*keepdim=*/true) + 1e-6);
}

/// [m, h, ..] -> [n, chunks, kDeltaChunk, ..], heads repeated and padded with zeros.
at::Tensor in_chunks(const at::Tensor& x, int64_t heads) {
  at::Tensor of = x.transpose(0, 1);
  if (of.size(0) != heads) of = of.repeat_interleave(heads / of.size(0), 0);
  const int64_t missing = (kDeltaChunk - of.size(1) % kDeltaChunk) % kDeltaChunk;
  if (missing > 0) {
    std::vector<int64_t> pad(2 * static_cast<size_t>(of.dim() - 1), 0);
    pad.back() = missing;
    of = at::constant_pad_nd(of, pad);
  }
  std::vector<int64_t> shape = of.sizes().vec();
  shape[1] = kDeltaChunk;
  shape.insert(shape.begin() + 1, of.size(1) / kDeltaChunk);
  return of.reshape(shape);
}

/// One sequence: out [m, n, e] in the wide type; `state` is updated.
at::Tensor one_sequence(const DeltaInput& in, at::Tensor& state_nde) {
  const int64_t tokens = in.v_tne.size(0), heads = in.v_tne.size(1);
  // A product with ones sums g up to each token: cumsum() on a GPU may not repeat its bits.
  const at::Tensor upto = at::ones({kDeltaChunk, kDeltaChunk}, in.g_tn.options()).triu();
  const at::Tensor q = in_chunks(in.q_thd, heads), k = in_chunks(in.k_thd, heads),
                   v = in_chunks(in.v_tne, heads),
                   beta = in_chunks(in.beta_tn, heads).unsqueeze(-1),
                   decay = in_chunks(in.g_tn, heads).matmul(upto);  // [n, chunks, kDeltaChunk]
  const at::Tensor hidden =
      at::ones({kDeltaChunk, kDeltaChunk}, decay.options().dtype(at::kBool)).triu(1);
  const at::Tensor between = (decay.unsqueeze(-1) - decay.unsqueeze(-2))
                                 .masked_fill(hidden, -std::numeric_limits<double>::infinity())
                                 .exp();
  const at::Tensor kt = k.transpose(-1, -2), total = decay.narrow(-1, kDeltaChunk - 1, 1);
  const at::Tensor system = (k * beta).matmul(kt) * between, seen = q.matmul(kt) * between;
  const at::Tensor from_start = decay.exp().unsqueeze(-1),
                   to_end = (total - decay).exp().unsqueeze(-1), whole = total.exp().unsqueeze(-1);
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < q.size(1); ++i) {
    const auto part = [i](const at::Tensor& x) { return x.select(1, i); };
    const at::Tensor error = part(v) - part(from_start) * part(k).matmul(state_nde);
    const at::Tensor values =
        at::linalg_solve_triangular(part(system), part(beta) * error, /*upper=*/false,
                                    /*left=*/true, /*unitriangular=*/true);
    parts.push_back(part(from_start) * part(q).matmul(state_nde) + part(seen).matmul(values));
    state_nde = part(whole) * state_nde + (part(k) * part(to_end)).transpose(-1, -2).matmul(values);
  }
  return at::cat(parts, 1).narrow(1, 0, tokens).transpose(0, 1);
}

}  // namespace

DeltaResult composed_delta_rule(const DeltaInput& in, const PackedSequences& sequences,
                                const at::Tensor& state_snde, bool final_state) {
  const at::ScalarType type = in.v_tne.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const double scale = 1 / std::sqrt(static_cast<double>(in.q_thd.size(2)));
  const DeltaInput all{unit_rows(in.q_thd.to(wide)) * scale, unit_rows(in.k_thd.to(wide)),
                       in.v_tne.to(wide), in.g_tn.to(wide), in.beta_tn.to(wide)};
  std::vector<at::Tensor> out, states;
  for (size_t s = 0; s + 1 < sequences.starts.size(); ++s) {
    const int64_t begin = sequences.starts[s], count = sequences.starts[s + 1] - begin;
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, count); };
    at::Tensor state = state_snde.defined()
                           ? state_snde.select(0, static_cast<int64_t>(s)).detach().to(wide)
                           : at::zeros({in.v_tne.size(1), in.q_thd.size(2), in.v_tne.size(2)},
                                       in.v_tne.options().dtype(wide));
    if (count > 0) {
      out.push_back(one_sequence(
          {part(all.q_thd), part(all.k_thd), part(all.v_tne), part(all.g_tn), part(all.beta_tn)},
          state));
    }
    if (final_state) states.push_back(state.detach());
  }
  return {out.empty() ? in.v_tne * 1 : at::cat(out, 0).to(type),
          final_state && !states.empty() ? at::stack(states) : at::Tensor()};
}

}  // namespace lft::ops
