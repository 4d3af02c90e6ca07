// Runs micro-batches at a few fixed shapes, so that a CUDA graph can launch the decoder's forward
// and backward pass in one call. Packed micro-batches only. Vision tower, projector and embedding
// run before it, outside; their backward pass runs after it. If tower and projector are frozen,
// they are a separate graph.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "models/family/family.h"
#include "models/ops/elementwise/dropout.h"
#include "src/train/machine/graph_cache.h"
#include "src/train/step/step.h"

namespace lft::train {

/// Upper bounds of a run's packed micro-batches.
struct PassLimits {
  int64_t tokens = 0;     // train.max_tokens_per_step
  int64_t longest = 0;    // data.max_tokens
  int64_t sequences = 0;  // samples of a step
};

/// Limit of image counts per micro-batch with separate buffers for pixels and features.
constexpr int64_t kMostImageCounts = 8;

class GraphPasses : public PassRunner {
 public:
  /// Makes the arena's stream the current one of the thread. `optimizer`'s gradients are bound to
  /// their buffer, whose addresses the graphs use; `exact` as for a GraphCache. `arena`: null for
  /// the device's own.
  GraphPasses(const family::Model& model, Optimizer& optimizer, PassLimits limits,
              at::Device device, bool exact, std::unique_ptr<GraphArena> arena = nullptr);
  GraphPasses(const GraphPasses&) = delete;

  /// For a packed micro-batch.
  at::Tensor run(family::Batch batch, const objective::ForwardContext& context,
                 double scale) override;
  GraphCache& graphs() { return graphs_; }

 private:
  struct Shape {
    int64_t tokens = 0, rows = 0;
    int64_t sequences = 0, longest = 0;  // upper bounds of count and length
    bool trains_embeds = false;
    bool tells_logprobs = false;  // into logprobs_
  };
  struct Inputs;  // views of the staged values

  at::Tensor embed(const family::Batch& batch);
  family::ImageFeatures frozen_features(const family::Batch& batch);
  void stage(const family::Batch& batch, const family::SupervisedRows& rows, const Shape& shape,
             const ops::DropoutPosition& position, double seed);
  void hold_embeds(const at::Tensor& embeds_btd);
  void decode(const Shape& shape, const std::vector<int64_t>& starts);

  family::Model model_;
  Optimizer& optimizer_;
  const PassLimits limits_;
  const at::Device device_;
  GraphCache graphs_;
  std::vector<layers::Linear> adapted_;
  const bool trains_images_;  // any part before the decoder
  at::Tensor gradients_;      // of the optimizer's buffer: every trainable of the decoder
  at::Tensor staged_;         // int64: all values that differ between micro-batches of a shape
  at::Tensor embeds_, embeds_gradient_, loss_;
  at::Tensor logprobs_;  // float32 [tokens]: a shape's rows first
  std::map<int64_t, std::pair<family::Batch, at::Tensor>>
      images_;  // by their number: pixels and features
  ops::DropoutStreams streams_;
};

}  // namespace lft::train
