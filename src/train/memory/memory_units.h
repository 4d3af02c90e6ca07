// Divides a model's pass into units (a tower block, the projector, a decoder layer, the LM head)
// with the bytes of each.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// Sizes that determine the memory of a pass over one micro-batch.
struct PassShape {
  int64_t samples = 0, rows = 0, longest = 0, images = 0, supervised = 0;
  int64_t attended = 0;  // decoder positions in attention, for which both sides of a pair have the
                         // positions that they share
  int64_t masked = 0;    // elements of the decoder's attention masks
  int64_t values = 0, tower = 0, placed = 0;  // of the images: pixel values, tower positions,
                                              // positions in the text
  // The maximum of each over the rows, if features are computed image by image
  // (src/train/inputs/kept_features.h); 0: they are not.
  int64_t row_values = 0, row_tower = 0, row_placed = 0;
};
/// Dtypes of the computation.
struct PassTypes {
  // Bytes per element: residual stream, products, norm outputs, frozen weights.
  double stream = 4, compute = 4, norm = 4, vision_stream = 4, weight = 4;
  bool casts = false;             // frozen weights are not stored in the products' dtype
  bool widens = false;            // products are computed in float32 (models/ops/core/gemm.h)
  bool widens_attention = false;  // and so is attention, not in tiles
  bool gpu = false;
};

/// One unit of the pass, in order. Bytes.
struct MemoryUnit {
  std::string name;      // "decoder layer 3"
  std::string part;      // "vision tower", "projector", "decoder layers", "LM head"
  double input = 0;      // kept if the block is recomputed
  double saved = 0;      // kept for the backward pass
  double forward = 0;    // peak temporaries of the forward pass, without kept ones: `saved`,
                         // or `input` if the block is recomputed
  double early = 0;      // part of `saved` that is kept in the second half of the backward pass
  double backward = 0;   // peak temporaries of the backward pass's first half (MLP)
  double second = 0;     // the same of the second half (attention)
  double gradients = 0;  // of its trainables
  bool recomputed = false;
};
std::vector<MemoryUnit> memory_units(const RunSettings& settings, const PassShape& shape);

/// Element counts of the trainables and of all parameters, and the optimizer's bytes.
struct TrainedSize {
  double trained = 0, frozen = 0, coded = 0;  // elements; coded: of frozen weights
  double before_decoder = 0;                  // trainables of vision tower and projector
  double coded_bytes = 0, moments = 0;        // bytes
  double layer_bytes = 0;                     // linear layers of the decoder's layers
  double shadows = 0;                         // bytes of the trainables' low-precision copies
  double starts = 0;                          // bytes of the initial A and B in host memory
  double lengths = 0;                         // bytes of the rows' lengths that adapters keep
  double update = 0;                          // temporary bytes of an update
};
TrainedSize trained_size(const RunSettings& settings);

PassTypes pass_types(const RunSettings& settings);

}  // namespace lft::train
