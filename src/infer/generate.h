// Decoding with a KV cache: greedy, temperature, top-k, top-p, repetition penalty. Knows ids and
// pixels, no text.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"

namespace lft::infer {

struct GenerateOptions {
  int64_t max_new_tokens = 256;
  double temperature = 0, top_p = 1;  // temperature 0: greedy; top_k and top_p are not looked at
  int64_t top_k = 0;                  // 0: all
  double repetition_penalty = 1;      // of ids of the prompt and of the answer so far
  uint64_t seed = 0;
  /// Whether an answer ends with its last id, for another reason than an end token; that id is
  /// kept.
  std::function<bool(const std::vector<int64_t>& answer)> stops = {};
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

/// One draw from softmax(logits / temperature), cut to the top_k likeliest tokens (and what equals
/// the last of them), then to the smallest set that holds top_p, as transformers' warpers do.
/// `uniform` in [0, 1) decides; temperature 0 takes the largest logit, the first of equals.
int64_t pick_token(const at::Tensor& logits_v, const GenerateOptions& options, double uniform);

/// transformers' RepetitionPenaltyLogitsProcessor: logits of `ids`, each once, are divided by the
/// penalty where they are above 0, else multiplied. Of float32 on the CPU, in place.
void penalise_repetition(at::Tensor& logits_v, const std::vector<int64_t>& ids, double penalty);

}  // namespace lft::infer
