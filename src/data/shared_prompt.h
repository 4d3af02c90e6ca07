// The positions that both answers of a pair have in common.
#pragma once
#include <cstdint>
#include <vector>

#include "models/family/config.h"
#include "src/data/store/sample.h"

namespace lft::data {

/// The number of first positions of both answers of a pair with the same hidden states: the prompt
/// without its last token, whose state predicts the answers' first tokens. Both have the same
/// images. 0 if images follow, and for models whose rotary angles depend on the length of a
/// sequence.
int64_t shared_prompt(const Sample& chosen, const Sample& rejected,
                      const family::ModelConfig& config);

/// Of each sample of a packed batch Sample::shared, if the sample before it is its other side.
/// Empty: none.
std::vector<int64_t> shared_in_batch(const std::vector<Sample>& samples);

/// Positions of a packed batch.
int64_t packed_positions(const std::vector<Sample>& samples, bool share_prompts);

}  // namespace lft::data
