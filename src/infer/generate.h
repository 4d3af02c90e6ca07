// Answers of prompts that are all there at once. Knows ids and pixels, no text.
#pragma once
#include <cstdint>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/infer/decoding.h"

namespace lft::infer {

/// The new ids of one prompt, without the end token. Never the image token. Ends where Decoding
/// says, or when a signal came. kInput when the prompt alone leaves no position; kNumeric where the
/// logits are not finite, which names the token by `tokenizer` where it is given.
std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute, const text::Tokenizer* tokenizer = nullptr);

struct Generated {
  std::vector<int64_t> ids;
  std::optional<NonFinite> bad;  // why it ends after these ids
};
/// The same for several prompts at once, each with its own length; row i draws from seed + i.
/// Greedy answers equal those of one prompt at a time up to rounding of logits. An answer whose
/// logits are not finite ends alone.
std::vector<Generated> generate_batch(family::Model& model,
                                      const std::vector<data::Sample>& prompts,
                                      const data::EncodeOptions& encode,
                                      const GenerateOptions& options, at::ScalarType compute);

}  // namespace lft::infer
