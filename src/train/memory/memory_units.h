// A model's pass cut into units (a block of a tower, the projector, a decoder layer, the LM head),
// and the bytes each of them takes.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// Sizes that decide what a pass over one micro-batch takes.
struct PassShape {
  int64_t samples = 0, rows = 0, longest = 0, images = 0, supervised = 0;
  int64_t masked = 0;                         // numbers of the masks of the decoder's attention
  int64_t values = 0, tower = 0, placed = 0;  // of the images: numbers of pixels, tower positions,
                                              // positions in the text
};
/// How it computes.
struct PassTypes {
  // Bytes of an element: residual stream, products, what a norm gives, frozen weights.
  double stream = 4, compute = 4, norm = 4, vision_stream = 4, weight = 4;
  bool casts = false;   // frozen weights are not stored in the dtype of products
  bool widens = false;  // products are computed in float32 (models/ops/core/gemm.h)
  bool gpu = false;
};

/// One unit of the pass, in its order. Bytes.
struct MemoryUnit {
  std::string name;      // "decoder layer 3"
  std::string part;      // "vision tower", "projector", "decoder layers", "LM head"
  double input = 0;      // kept where the block is recomputed
  double saved = 0;      // kept for the backward pass
  double forward = 0;    // temporaries of the forward pass at most, without what it keeps: `saved`,
                         // or `input` where the block is recomputed
  double early = 0;      // of `saved`, what is still there in the second half of the backward pass
  double backward = 0;   // temporaries of the backward pass's first half (MLP) at most
  double second = 0;     // the same of the second half (attention)
  double gradients = 0;  // of its trainables
  bool recomputed = false;
};
std::vector<MemoryUnit> memory_units(const RunSettings& settings, const PassShape& shape);

/// Elements of what the recipe trains and of all parameters, and their optimizer's bytes.
struct TrainedSize {
  double trained = 0, frozen = 0, coded = 0;  // elements; coded: of the frozen ones
  double before_decoder = 0;                  // of the trained ones: vision tower and projector
  double coded_bytes = 0, moments = 0;        // bytes
  double layer_bytes = 0;                     // of the linear layers of the decoder's layers
  double shadows = 0;                         // bytes of the trainables' low-precision copies
  double starts = 0;                          // bytes of A and B as they began, in host memory
  double update = 0;                          // temporary bytes of an update
};
TrainedSize trained_size(const RunSettings& settings);

PassTypes pass_types(const RunSettings& settings);

}  // namespace lft::train
