// Decoding with a KV cache: greedy, temperature, top-p. Knows ids and pixels, no text.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"

namespace lft::infer {

struct GenerateOptions {
  int64_t max_new_tokens = 256;
  double temperature = 0, top_p = 1;  // temperature 0: greedy, and top_p is not looked at
  uint64_t seed = 0;
  std::function<void(size_t row, int64_t id)>
      on_token;  // called for every new id as it comes (chat prints while it decodes)
};

/// The new ids of one prompt, without the end token. Never the image token. Stops at any end token
/// of encode.config, after max_new_tokens, at the model's last position, or when a signal came.
/// kInput when the prompt alone leaves no position.
std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute);
/// The same for several prompts at once, each with its own length. Greedy answers equal those of
/// one prompt at a time up to rounding of logits.
std::vector<std::vector<int64_t>> generate_batch(family::Model& model,
                                                 const std::vector<data::Sample>& prompts,
                                                 const data::EncodeOptions& encode,
                                                 const GenerateOptions& options,
                                                 at::ScalarType compute);

/// One draw from softmax(logits / temperature) cut to the smallest set of tokens that holds top_p,
/// as transformers' warpers do. `uniform` in [0, 1) decides; temperature 0 takes the largest logit,
/// the first of equals.
int64_t pick_token(const at::Tensor& logits_v, double temperature, double top_p, double uniform);

}  // namespace lft::infer
