// Layers of one kind, as one JSON line: median seconds of a forward and of a backward pass.
//   layer_bench delta TOKENS KEY_HEADS HEADS SIZE PASSES: the gated delta rule in FP32. With one
//     token: the step of a decoder, without a graph, from a state to the next.
//   layer_bench experts TOKENS HIDDEN EXPERTS CHOSEN INTERMEDIATE RANK DTYPE PASSES: an MLP of
//     experts (fp32 or bf16), frozen with a rank of 0, else with LoRA on all experts.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "models/llama/sparse_mlp.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/ops/core/precision.h"
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

/// Runs and times both passes after one that is not counted, which allocates.
void measure(int64_t passes, const std::function<void()>& run_forward,
             const std::function<void()>& run_backward) {
  std::vector<double> forward, backward;
  for (int64_t i = 0; i <= passes; ++i) {
    auto start = Clock::now();
    run_forward();
    const double forward_s = seconds(start);
    start = Clock::now();
    run_backward();
    if (i == 0) continue;
    forward.push_back(forward_s);
    backward.push_back(seconds(start));
  }
  std::printf("{\"forward_s\": %.9f, \"backward_s\": %.9f}\n", median(forward), median(backward));
}

void delta(int64_t tokens, int64_t key_heads, int64_t heads, int64_t size, int64_t passes) {
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
  ops::DeltaResult result;
  measure(
      passes, [&] { result = ops::gated_delta_rule(in, sequences, state, step); },
      [&] {
        if (step) {
          state = result.state_snde;
        } else {
          result.out_tne.backward(upstream);
        }
      });
}

void experts(int64_t tokens, const llama::LlamaConfig& config, int64_t rank, at::ScalarType dtype,
             int64_t passes) {
  llama::SparseMlp mlp(config, at::TensorOptions(dtype), at::TensorOptions(dtype));
  for (at::Tensor& parameter : mlp->parameters()) parameter.normal_(0, 0.02);
  if (rank > 0) {
    lora::inject_lora(lora::select_sites(lora::linear_sites(*mlp), {"vision:experts.*"}),
                      {.rank = rank, .alpha = 2.0 * static_cast<double>(rank)}, /*seed=*/1);
    lora::make_trainable(*mlp, {});
    lora::keep_shadows(*mlp, dtype);
  }
  const ops::ComputeDtypeGuard compute(dtype);
  const at::Tensor x = at::randn({1, tokens, config.hidden}).to(dtype).set_requires_grad(true),
                   upstream = at::randn({1, tokens, config.hidden}).to(dtype);
  at::Tensor y;
  measure(
      passes, [&] { y = mlp->forward(ops::Normed(x)); }, [&] { y.backward(upstream); });
}

}  // namespace
}  // namespace lft

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  if (kind == "delta" && argc == 7) {
    lft::delta(number(2), number(3), number(4), number(5), number(6));
  } else if (kind == "experts" && argc == 10) {
    lft::llama::LlamaConfig config;
    config.hidden = number(3);
    config.experts = {.count = number(4), .per_token = number(5), .intermediate = number(6)};
    lft::experts(number(2), config, number(7),
                 std::string(argv[8]) == "bf16" ? at::kBFloat16 : at::kFloat, number(9));
  } else {
    return 2;
  }
  return 0;
}
