// From samples to what the model reads: padded or packed.
#pragma once
#include <cstdint>
#include <vector>

#include "models/llava/llava.h"
#include "src/data/batch.h"
#include "src/data/dataset.h"

namespace lft::data {

/// Right-padded; ids and labels on the CPU, pixels on `device`, normalised in float32 as HF's
/// processor does: (x - 255 mean) / (255 std).
llava::LlavaBatch collate(const std::vector<Sample>& samples, const EncodeOptions& options,
                          at::Device device);
/// The same without padding: all samples behind each other in one row. Where they are fewer than
/// `fill_to` positions, sequences of pad tokens follow, each of at most options.max_tokens, without
/// a label.
llava::LlavaBatch pack(const std::vector<Sample>& samples, const EncodeOptions& options,
                       at::Device device, int64_t fill_to = 0);
/// pack() where a recipe packs (train.max_tokens_per_step), else collate().
llava::LlavaBatch lay_out(const std::vector<Sample>& samples, const EncodeOptions& options,
                          at::Device device, bool packed);

/// Positions that a packed micro-batch of `tokens` is filled up to: one of at most 32 sizes up to
/// `most`, and no less.
int64_t filled_tokens(int64_t tokens, int64_t most);

}  // namespace lft::data
