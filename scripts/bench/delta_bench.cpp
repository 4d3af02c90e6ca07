// delta_bench TOKENS KEY_HEADS HEADS SIZE PASSES: the gated delta rule of one layer in FP32, as one
// JSON line: median seconds of a forward and of a backward pass. With one token: of the step of a
// decoder, without a graph, from a state to the next.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "models/ops/recurrent/gated_delta.h"

namespace lft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int bench(int64_t tokens, int64_t key_heads, int64_t heads, int64_t size, int64_t passes) {
  const bool step = tokens == 1;
  const auto leaf = [&](const at::Tensor& x) { return x.detach().set_requires_grad(!step); };
  const ops::DeltaInput in{leaf(at::randn({tokens, key_heads, size})),
                           leaf(at::randn({tokens, key_heads, size})),
                           leaf(at::randn({tokens, heads, size})), leaf(-at::rand({tokens, heads})),
                           leaf(at::rand({tokens, heads}))};
  const at::Tensor upstream = at::randn({tokens, heads, size});
  at::Tensor state = step ? at::zeros({1, heads, size, size}) : at::Tensor();
  ops::PackedSequences sequences;
  sequences.starts = {0, tokens};
  const at::AutoGradMode with_graph(!step);
  std::vector<double> forward, backward;
  for (int64_t i = 0; i <= passes; ++i) {
    auto start = Clock::now();
    const ops::DeltaResult result = ops::gated_delta_rule(in, sequences, state, step);
    const double forward_s = seconds(start);
    start = Clock::now();
    if (step) {
      state = result.state_snde;
    } else {
      result.out_tne.backward(upstream);
    }
    if (i == 0) continue;  // the first pass allocates
    forward.push_back(forward_s);
    backward.push_back(seconds(start));
  }
  std::printf("{\"forward_s\": %.9f, \"backward_s\": %.9f}\n", median(forward), median(backward));
  return 0;
}

}  // namespace
}  // namespace lft

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  return lft::bench(number(1), number(2), number(3), number(4), number(5));
}
