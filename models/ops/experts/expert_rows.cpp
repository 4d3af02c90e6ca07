#include "models/ops/experts/expert_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

#include "models/base/dims.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"

namespace lft::ops {

ExpertRowsPtr sort_by_expert(const at::Tensor& choices_tk, int64_t experts) {
  expect_dims(choices_tk, "choices", {{"t"}, {"k"}});
  const at::Tensor host =
      choices_tk.is_meta()
          ? at::arange(choices_tk.numel(), at::kLong).remainder_(experts).view(choices_tk.sizes())
          : choices_tk.to(at::kCPU).contiguous();
  const int64_t* const chosen = host.const_data_ptr<int64_t>();
  const int64_t count = host.numel(), per_token = host.size(1);
  auto rows = c10::make_intrusive<ExpertRows>();
  rows->starts.assign(static_cast<size_t>(experts) + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++rows->starts[static_cast<size_t>(chosen[i]) + 1];
  for (size_t e = 1; e < rows->starts.size(); ++e) rows->starts[e] += rows->starts[e - 1];
  std::vector<int64_t> next(rows->starts.begin(), rows->starts.end() - 1);
  const at::Tensor choices = at::empty({count}, at::kLong), tokens = at::empty({count}, at::kLong),
                   places = at::empty(host.sizes(), at::kLong);
  int64_t *const choice = choices.mutable_data_ptr<int64_t>(),
                 *const token = tokens.mutable_data_ptr<int64_t>(),
                 *const place = places.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = next[static_cast<size_t>(chosen[i])]++;
    choice[row] = i;
    token[row] = i / per_token;
    place[i] = row;
  }
  const at::Device device = choices_tk.device();
  rows->choices_r = copy_to_device(choices, device);
  rows->tokens_r = copy_to_device(tokens, device);
  rows->rows_tk = copy_to_device(places, device);
  return rows;
}

at::Tensor sum_rows(const at::Tensor& x_rd, const ExpertRows& rows) {
  const int64_t t = rows.rows_tk.size(0), k = rows.rows_tk.size(1), d = x_rd.size(1);
  if (!has_loop(x_rd)) {
    const at::Tensor picked = x_rd.index_select(0, rows.rows_tk.flatten()).view({t, k, d});
    return picked.sum(1, /*keepdim=*/false, at::kFloat).to(x_rd.scalar_type());
  }
  at::Tensor sums = at::empty({t, d}, x_rd.options());
  const int64_t* const places = rows.rows_tk.const_data_ptr<int64_t>();
  with_loop_type(x_rd.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* const x = x_rd.const_data_ptr<T>();
    T* const out = sums.mutable_data_ptr<T>();
    parallel_for(t, std::max<int64_t>(1, kLoopGrain / (k * d)), [&](int64_t begin, int64_t end) {
      std::vector<float> sum(static_cast<size_t>(d));
      for (int64_t token = begin; token < end; ++token) {
        std::ranges::fill(sum, 0.0f);
        for (int64_t j = 0; j < k; ++j) {
          const T* const row = x + places[token * k + j] * d;
          for (int64_t c = 0; c < d; ++c) sum[static_cast<size_t>(c)] += static_cast<float>(row[c]);
        }
        for (int64_t c = 0; c < d; ++c)
          out[token * d + c] = static_cast<T>(sum[static_cast<size_t>(c)]);
      }
    });
  });
  return sums;
}

void for_experts(const ExpertRows& rows, bool in_parallel,
                 const std::function<void(int64_t, int64_t, int64_t)>& body) {
  std::vector<int64_t> order;
  for (int64_t e = 0; e < rows.experts(); ++e)
    if (rows.of(e) > 0) order.push_back(e);
  const auto run = [&](int64_t e) { body(e, rows.starts[static_cast<size_t>(e)], rows.of(e)); };
  std::ranges::stable_sort(order, std::ranges::greater(), [&](int64_t e) { return rows.of(e); });
  const int64_t threads = at::get_num_threads();
  if (!in_parallel || threads == 1 || order.empty() ||
      rows.of(order.front()) * threads > rows.rows()) {
    for (const int64_t e : order) run(e);
    return;
  }
  std::atomic<size_t> next{0};
  const bool graph = at::GradMode::is_enabled();
  parallel_for(threads, 1, [&](int64_t, int64_t) {
    const at::AutoGradMode mode(graph);  // a setting of each thread
    for (size_t i = next++; i < order.size(); i = next++) run(order[i]);
  });
}

}  // namespace lft::ops
