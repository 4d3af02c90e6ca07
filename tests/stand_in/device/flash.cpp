// Packed attention on the simulated device, where a GPU runs FlashAttention.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <vector>

#include "stand_in/device/backend.h"

namespace lft::test::stand_in {
namespace {

/// Attention within each of the packed sequences, like FlashAttention's varlen form:
/// products of 16-bit numbers, sums and softmax in float32. q [t, h, e], k and v [s, g, e]; starts:
/// int32 on the device. Queries are the last positions of their sequence.
struct Varlen {
  at::Tensor q, k, v, starts_q, starts_k;
  double scale;
  bool causal;

  struct Range {
    int64_t begin, count;
  };
  /// Calls body(queries, keys) for each sequence with queries.
  template <class Body>
  void each(const Body& body) const {
    const int32_t *const of_q = starts_q.const_data_ptr<int32_t>(),
                         *const of_k = starts_k.const_data_ptr<int32_t>();
    for (int64_t s = 0; s + 1 < starts_q.numel(); ++s) {
      if (of_q[s + 1] > of_q[s])
        body(Range{of_q[s], of_q[s + 1] - of_q[s]}, Range{of_k[s], of_k[s + 1] - of_k[s]});
    }
  }
  /// float32 [h, n, e], heads of k and v repeated.
  at::Tensor part(const at::Tensor& x, Range at) const {
    const at::Tensor heads = x.narrow(0, at.begin, at.count).to(at::kFloat).transpose(0, 1);
    return heads.repeat_interleave(q.size(1) / heads.size(0), 0);
  }
  at::Tensor probabilities(const at::Tensor& q_hne, const at::Tensor& k_hse) const {
    at::Tensor scores = at::bmm(q_hne, k_hse.transpose(1, 2)) * scale;
    if (causal) {
      const at::Tensor later =
          at::ones(scores.sizes().slice(1), at::kBool).triu(1 + scores.size(2) - scores.size(1));
      scores = scores.masked_fill(later, -INFINITY);
    }
    return at::softmax(scores, -1);
  }
};

void check_varlen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& starts) {
  TORCH_CHECK(starts && starts->device() == q.device() && starts->scalar_type() == at::kInt,
              "flash attention: the starts are not int32 of the device");
  TORCH_CHECK(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16,
              "FlashAttention only support fp16 and bf16 data type");
  TORCH_CHECK(q.size(-1) % 8 == 0 && q.size(-1) <= 256, "FlashAttention: head size ", q.size(-1));
  TORCH_CHECK(q.stride(-1) == 1 && k.stride(-1) == 1 && v.stride(-1) == 1,
              "Input tensor must have contiguous last dimension");
  TORCH_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& starts_q, const std::optional<at::Tensor>& starts_k, int64_t,
    int64_t, double, bool causal, bool, std::optional<double> scale, std::optional<int64_t>,
    std::optional<int64_t>, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&) {
  check_varlen(q, k, v, starts_q);
  check_varlen(q, k, v, starts_k);
  const at::Tensor out = at::empty_like(q),
                   lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  const Varlen call{as_cpu(q),         as_cpu(k), as_cpu(v), as_cpu(*starts_q),
                    as_cpu(*starts_k), *scale,    causal};
  count_bytes({q, k, v, out, lse});
  count(&Counts::attended_sequences, starts_q->numel() - 1);
  launch([call, out = as_cpu(out)] {
    call.each([&](Varlen::Range queries, Varlen::Range keys) {
      const at::Tensor p = call.probabilities(call.part(call.q, queries), call.part(call.k, keys));
      at::Tensor rows = out.narrow(0, queries.begin, queries.count);
      rows.copy_(
          at::bmm(p.to(out.scalar_type()).to(at::kFloat), call.part(call.v, keys)).transpose(0, 1));
    });
  });
  const at::Tensor none = at::empty({2}, q.options().dtype(at::kLong));
  return {out, lse, none, at::empty({}, none.options()), at::empty({0}, q.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& lse, const at::Tensor& starts_q,
    const at::Tensor& starts_k, int64_t, int64_t, double, bool causal, const at::Tensor&,
    const at::Tensor&, std::optional<double> scale, std::optional<int64_t>,
    std::optional<int64_t>) {
  check_varlen(q, k, v, starts_q);
  check_varlen(q, k, v, starts_k);
  const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  const Varlen call{as_cpu(q),        as_cpu(k), as_cpu(v), as_cpu(starts_q),
                    as_cpu(starts_k), *scale,    causal};
  count_bytes({dout, q, k, v, out, lse, dq, dk, dv});
  launch([call, dy = as_cpu(dout.contiguous()), dq = as_cpu(dq), dk = as_cpu(dk), dv = as_cpu(dv)] {
    const int64_t groups = dk.size(1);
    const auto store = [&](at::Tensor rows, const at::Tensor& of_heads,
                           int64_t heads) {  // [h, n, e]
      const at::Tensor sums = of_heads.view({heads, -1, of_heads.size(1), of_heads.size(2)}).sum(1);
      rows.copy_(sums.transpose(0, 1));
    };
    call.each([&](Varlen::Range queries, Varlen::Range keys) {
      const at::Tensor qs = call.part(call.q, queries), ks = call.part(call.k, keys),
                       vs = call.part(call.v, keys), d = call.part(dy, queries);
      const at::Tensor p = call.probabilities(qs, ks), dp = at::bmm(d, vs.transpose(1, 2));
      const at::Tensor ds = p * (dp - (dp * p).sum(-1, true)) * call.scale;
      store(dq.narrow(0, queries.begin, queries.count), at::bmm(ds, ks), dq.size(1));
      store(dk.narrow(0, keys.begin, keys.count), at::bmm(ds.transpose(1, 2), qs), groups);
      store(dv.narrow(0, keys.begin, keys.count), at::bmm(p.transpose(1, 2), d), groups);
    });
  });
  return {dq, dk, dv};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_flash_attention_forward", &flash_forward);
  m.impl("_flash_attention_backward", &flash_backward);
}

}  // namespace
}  // namespace lft::test::stand_in
