// From samples to what the model reads: padded or packed.
#pragma once
#include <cstdint>
#include <vector>

#include "models/family/batch.h"
#include "src/data/batch.h"
#include "src/data/dataset.h"

namespace lft::data {

/// Right-padded; ids and labels on the CPU, pixels on `device`, normalised in float32 as HF's
/// processor does: (x - 255 mean) / (255 std).
family::Batch collate(const std::vector<Sample>& samples, const EncodeOptions& options,
                      at::Device device);
/// The same without padding: all samples after each other in one row. Where they are fewer than
/// `fill_to` positions, sequences of pad tokens follow, each of at most options.max_tokens, without
/// a label.
family::Batch pack(const std::vector<Sample>& samples, const EncodeOptions& options,
                   at::Device device, int64_t fill_to = 0);

/// How the samples of a run become what the model reads of them.
struct BatchLayout {
  EncodeOptions encode;
  at::Device device = at::kCPU;
  bool packed = false;  // train.max_tokens_per_step: no padding
  int64_t fill_up = 0;  // packed: filled up to one of a few sizes, at most this one; 0: not
};
/// pack() or collate(), as the layout says; pixels are on their way to the device.
family::Batch make_batch(const BatchLayout& layout, const std::vector<Sample>& samples);

/// Positions that a packed micro-batch of `tokens` is filled up to: one of at most 32 sizes up to
/// `most`, and no less.
int64_t filled_tokens(int64_t tokens, int64_t most);

}  // namespace lft::data
