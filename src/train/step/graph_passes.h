// Micro-batches at a few fixed shapes, so that a CUDA graph can launch the decoder's forward and
// backward pass in one call. Packed micro-batches only. Vision tower, projector and embedding run
// before it, outside; so does their backward pass, after it. Where tower and projector are frozen,
// they are a graph of their own.
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

/// What bounds a run's packed micro-batches.
struct PassLimits {
  int64_t tokens = 0;     // train.max_tokens_per_step
  int64_t longest = 0;    // data.max_tokens
  int64_t sequences = 0;  // samples of a step
};

/// Numbers of images of a micro-batch whose pixels and features have a place of their own.
constexpr int64_t kMostImageCounts = 8;

class GraphPasses : public PassRunner {
 public:
  /// Its arena's stream is the thread's current one from here on. `optimizer`'s gradients are bound
  /// to their places, where its graphs find them; `exact` as for a GraphCache. `arena`: null for
  /// the device's own.
  GraphPasses(const family::Model& model, Optimizer& optimizer, PassLimits limits,
              at::Device device, bool exact, std::unique_ptr<GraphArena> arena = nullptr);
  GraphPasses(const GraphPasses&) = delete;

  /// Of a packed micro-batch.
  at::Tensor run(family::Batch batch, const objective::ForwardContext& context,
                 double scale) override;
  GraphCache& graphs() { return graphs_; }

 private:
  struct Shape {
    int64_t tokens = 0, rows = 0;
    int64_t sequences = 0, longest = 0;  // at least as many, and as long, as there are
    bool trains_embeds = false;
    bool tells_logprobs = false;  // into logprobs_
  };
  struct Inputs;  // views of the staged numbers

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
  const bool trains_images_;  // something before the decoder
  at::Tensor gradients_;      // of the optimizer's buffer: every trainable of the decoder
  at::Tensor staged_;         // int64: whatever differs between micro-batches of a shape
  at::Tensor embeds_, embeds_gradient_, loss_;
  at::Tensor logprobs_;  // float32 [tokens]: a shape's rows first
  std::map<int64_t, std::pair<family::Batch, at::Tensor>>
      images_;  // by their number: pixels and features
  ops::DropoutStreams streams_;
};

}  // namespace lft::train
