// Collates samples into a batch, padded or packed.
#pragma once
#include <cstdint>
#include <vector>

#include "models/family/batch.h"
#include "src/data/encode_options.h"
#include "src/data/store/sample.h"

namespace lft::data {

/// Right-padded; ids and labels on the CPU, pixels on `device`, normalised in float32 as in HF's
/// processor: (x - 255 mean) / (255 std).
family::Batch collate(const std::vector<Sample>& samples, const EncodeOptions& options,
                      at::Device device);
/// The same without padding: all samples are concatenated in one row, with options.share_prompts
/// without the positions that a sample shares with the one before. If they have fewer than
/// `fill_to` positions, sequences of pad tokens follow, each of at most options.max_tokens, without
/// labels.
family::Batch pack(const std::vector<Sample>& samples, const EncodeOptions& options,
                   at::Device device, int64_t fill_to = 0);

/// The layout of batches made from the samples of a run.
struct BatchLayout {
  EncodeOptions encode;
  at::Device device = at::kCPU;
  bool packed = false;  // train.max_tokens_per_step
  int64_t fill_up = 0;  // packed: padded to one of a few sizes, at most this one; 0: not padded
  bool packs() const { return packed || encode.share_prompts; }  // no padding
};
/// pack() or collate(), by the layout; the copy of the pixels to the device is asynchronous.
family::Batch make_batch(const BatchLayout& layout, const std::vector<Sample>& samples);

/// The number of positions that a packed micro-batch of `tokens` is padded to: one of at most 32
/// sizes up to `most`.
int64_t filled_tokens(int64_t tokens, int64_t most);

}  // namespace lft::data
