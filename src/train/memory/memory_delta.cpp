#include "src/train/memory/memory_delta.h"

namespace lft::train {
namespace {

struct Sizes {
  explicit Sizes(const llama::DeltaConfig& delta)
      : heads(static_cast<double>(delta.value_heads)),
        keys(static_cast<double>(delta.keys())),
        values(static_cast<double>(delta.values())),
        channels(static_cast<double>(delta.channels())) {}
  double heads, keys, values, channels;
};

}  // namespace

double delta_keeps(const llama::DeltaConfig& delta, double tokens, double kept, double compute) {
  const Sizes of(delta);
  // Inputs and outputs of the convolution, the logarithm of the decay with the softplus's input,
  // and beta; then the input of the norm, its gate and its output.
  return tokens * (2 * of.channels * compute + of.heads * (8 + compute)) +
         kept * 3 * of.values * compute;
}

double delta_width(const llama::DeltaConfig& delta) {
  const Sizes of(delta);
  return 2 * (of.channels + of.values);
}

double delta_workspace(const llama::DeltaConfig& delta, double tokens) {
  const Sizes of(delta);
  return 4 * tokens * 2 * (of.values * (1 + static_cast<double>(delta.key_dim) / 64) + of.keys);
}

double delta_states(const llama::DeltaConfig& delta, int64_t rows, int64_t layers, double compute) {
  const Sizes of(delta);
  return static_cast<double>(rows * layers) *
         (4 * of.values * static_cast<double>(delta.key_dim) +
          compute * of.channels * static_cast<double>(delta.kernel - 1));
}

}  // namespace lft::train
