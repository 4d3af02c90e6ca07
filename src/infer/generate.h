// Answers of prompts that are all there at once. Knows ids and pixels, no text.
#pragma once
#include <cstdint>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/infer/decoding.h"

namespace lft::infer {

/// The new ids of one prompt, without the end token. Never the image token. Ends where Decoding
/// says, or when a signal came. kInput when the prompt alone leaves no position.
std::vector<int64_t> generate(family::Model& model, const data::Sample& prompt,
                              const data::EncodeOptions& encode, const GenerateOptions& options,
                              at::ScalarType compute);
/// The same for several prompts at once, each with its own length; row i draws from seed + i.
/// Greedy answers equal those of one prompt at a time up to rounding of logits.
std::vector<std::vector<int64_t>> generate_batch(family::Model& model,
                                                 const std::vector<data::Sample>& prompts,
                                                 const data::EncodeOptions& encode,
                                                 const GenerateOptions& options,
                                                 at::ScalarType compute);

}  // namespace lft::infer
