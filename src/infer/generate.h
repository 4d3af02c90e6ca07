// Answers to a fixed set of prompts. It uses ids and pixels, no text.
#pragma once
#include <cstdint>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/infer/decoding.h"

namespace lft::infer {

/// The generated ids for one prompt, without the end token and never the image token. It ends as
/// Decoding does, or after a signal. kInput if the prompt leaves no position for an answer;
/// kNumeric if the logits are not finite (`tokenizer`, if given, decodes the token for the
/// message).
std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute, const text::Tokenizer* tokenizer = nullptr);

struct Generated {
  std::vector<int64_t> ids;
  at::Tensor logprobs;           // of the whole row's supervised tokens, float32
  std::optional<NonFinite> bad;  // why it ends after these ids
};
/// The same for several prompts of any lengths; row i uses seed + i. Greedy answers equal those of
/// single prompts up to rounding of the logits. Logits that are not finite end only their answer.
/// `wholes`: none, or the row of each prompt, which is scored, too (Decoding::Prompt::whole).
std::vector<Generated> generate_batch(family::Model& model,
                                      const std::vector<data::Sample>& prompts,
                                      const data::EncodeOptions& encode,
                                      const GenerateOptions& options, at::ScalarType compute,
                                      const std::vector<const data::Sample*>& wholes = {});

}  // namespace lft::infer
