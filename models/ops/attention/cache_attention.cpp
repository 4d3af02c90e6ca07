#include "models/ops/attention/cache_attention.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/base/dims.h"
#include "models/ops/attention/attention.h"
#include "models/ops/attention/cache_attention_loops.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"

namespace lft::ops {
namespace {

/// More queries of one key head are as fast in a library's products.
constexpr int64_t kMostQueries = 3;

bool runs_loop(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values) {
  const bool graph = at::GradMode::is_enabled() &&
                     (q.requires_grad() || keys.requires_grad() || values.requires_grad());
  const auto fits = [](const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1; };
  return !graph && q.device().is_cpu() && q.size(2) <= kMostQueries &&
         has_loop_type(q.scalar_type()) && fits(keys) && fits(values);
}

}  // namespace

at::Tensor cache_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                           const at::Tensor& seen) {
  expect_dims(q, "q", {{"b"}, {"g"}, {"r"}, {"e"}});
  const int64_t b = q.size(0), g = q.size(1), r = q.size(2), e = q.size(3);
  expect_dims(keys, "keys", {{"b", b}, {"g", g}, {"s"}, {"e", e}});
  const int64_t s = keys.size(2);
  expect_dims(values, "values", {{"b", b}, {"g", g}, {"s", s}, {"e", e}});
  expect_dims(seen, "seen", {{"b", b}, {"1", 1}, {"1", 1}, {"s", s}});
  if (!runs_loop(q, keys, values)) return attention(q, keys, values, seen, /*causal=*/false);
  at::RecordFunction record(at::RecordScope::FUNCTION);
  std::vector<c10::IValue> inputs;
  if (record.isActive()) {
    inputs = {q, keys, values};
    record.before("lft::scaled_dot_product_attention",
                  c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  }
  const at::Tensor queries = q.contiguous(), shown = seen.contiguous();
  at::Tensor out = at::empty(q.sizes(), q.options());
  with_loop_type(q.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t work = 2 * r * s * e;
    parallel_for(b * g, std::max<int64_t>(1, kLoopGrain / work), [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(static_cast<size_t>(r * (e + s)));
      for (int64_t head = begin; head < end; ++head) {
        const int64_t row = head / g, key_head = head % g;
        loops::cache_head(loops::CacheHead<T>{
            .q = queries.const_data_ptr<T>() + head * r * e,
            .keys = keys.const_data_ptr<T>() + row * keys.stride(0) + key_head * keys.stride(1),
            .values =
                values.const_data_ptr<T>() + row * values.stride(0) + key_head * values.stride(1),
            .seen = shown.const_data_ptr<bool>() + row * s,
            .out = out.mutable_data_ptr<T>() + head * r * e,
            .rows = r,
            .width = e,
            .count = s,
            .key_stride = keys.stride(2),
            .value_stride = values.stride(2),
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(e))),
            .scratch = scratch.data()});
      }
    });
  });
  return out;
}

}  // namespace lft::ops
