// Are two models the same function? Compared on a few made-up prompts and an image, position by
// position. Shape letters: b rows, t positions, d hidden, k positions, v vocabulary.
#pragma once
#include <vector>

#include "models/family/family.h"
#include "src/hf/adapter/adapter.h"

namespace lft::cli {

/// Token ids and pixels are a pure function of the config: rows of text, and a row with an image
/// where the positions allow one.
std::vector<family::Batch> probe_batches(const family::ModelConfig& config);
/// What one model makes of the batches.
struct Probed {
  at::Tensor logits_kv;  // float32 on the CPU, of the real positions of all batches
  std::vector<family::ImageFeatures> features;  // of each batch's images
};
/// By one pass through the decoder, so that each of its weights is used once. Of an image's
/// positions the decoder gets a few that are spread over it: what its layers do is seen on any.
/// `known`: the features, where they are there already.
Probed probe_model(family::Model& model, const std::vector<family::Batch>& batches,
                   const std::vector<family::ImageFeatures>& known = {});

struct ProbeDifference {
  double max_abs = 0, mean_kl = 0, top1_agreement = 1;  // kl: natural log, of `got` from `want`
  double largest_logit = 0;                             // of `want`, absolute
  int64_t positions = 0;
};
ProbeDifference compare_logits(const at::Tensor& want_kv, const at::Tensor& got_kv);

}  // namespace lft::cli
