// The inputs of a model for one micro-batch. Shape letters: b batch, t positions (images expanded),
// n tiles, c channels, h w pixels, k supervised tokens.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/family/image_processor.h"
#include "models/ops/attention/attention.h"

namespace lft::family {

/// One micro-batch. Rows are right-padded; with causal attention no position sees the
/// padding after its row, so no mask is needed. A packed batch is one row with consecutive
/// sequences.
struct Batch {
  at::Tensor input_ids_bt;  // int64 (CPU); config.image_token at every image position
  at::Tensor labels_bt;     // int64 (CPU), -100 if unsupervised; unshifted (labels[i] is
                            // input_ids[i] or -100). May be undefined
  at::Tensor lengths_b;     // int64, real positions per row (CPU)
  std::shared_ptr<const ops::PackedSequences>
      packed;         // null: padded. The first label of every sequence is -100
  at::Tensor pixels;  // float32, normalised, of the images in row order: [n, c, h, w] if all tiles
                      // have one size, else [values], the tiles [c, h, w] in sequence. Undefined
                      // without images
  std::vector<ImageShape> images;  // one per image; empty: every tile of `pixels` is an image
  std::vector<int64_t> shown =
      {};                       // the images in the order of the text, as indices into `images`;
                                // empty: each once. Both sides of a pair show the same ones
  at::Tensor reference_n = {};  // float64 (CPU): log-probabilities of the rows or packed
                                // sequences under an objective's reference model, summed over
                                // their supervised tokens; undefined: not computed
  at::Tensor desirable_n = {};  // bool (CPU): the labels of KTO of the same; undefined: none
};

/// The rows (flat indices into b * t) whose next token is supervised, in row-major order, and that
/// token: int64 [k] each, on the CPU.
struct SupervisedRows {
  at::Tensor rows_k, targets_k;
};
/// Throws kInput for a label outside the model's vocabulary.
SupervisedRows supervised_rows(const at::Tensor& labels_bt, int64_t vocab);

/// The shapes of all images of `pixels`, also if `images` is empty.
std::vector<ImageShape> image_shapes(const Batch& batch);
/// The images of a batch, each as the pixels and the shape of another batch.
std::vector<Batch> single_images(const Batch& batch);
/// The shapes of the images in the order of the text.
std::vector<ImageShape> shown_shapes(const Batch& batch);

}  // namespace lft::family
