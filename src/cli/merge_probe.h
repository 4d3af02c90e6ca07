// Are two models the same function? Compared on a few made-up prompts and an image, position by
// position. Shape letters: b rows, t positions, d hidden, k positions, v vocabulary.
#pragma once
#include <string>
#include <vector>

#include "models/family/model.h"
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
/// Of the model in a folder, with an adapter where one is named. The decoder's layers are read as
/// the pass comes to them.
Probed probe_folder(const std::string& model_path, const std::string& adapter_path,
                    const std::vector<family::ImageFeatures>& known = {});

struct ProbeDifference {
  double max_abs = 0, mean_kl = 0, top1_agreement = 1;  // kl: natural log, of `got` from `want`
  double largest_logit = 0;                             // of `want`, absolute
  int64_t positions = 0;
};
ProbeDifference compare_logits(const at::Tensor& want_kv, const at::Tensor& got_kv);

/// How far rounding alone may take the merged model from base + adapter. Every merged weight is off
/// by half a unit in the last place of the stored type, u = 2^-12 in F16 and 2^-9 in BF16 of
/// itself; through the layers that grows to some tens of u of the largest logit. In F32 the order
/// of summation weighs more. (A model of two layers measured 2 u.) A wrong scale or a missed layer
/// is far outside.
struct RoundingBound {
  double relative_max_abs, mean_kl;
};
RoundingBound rounding_bound(io::DType dtype);
/// A NaN fails it.
bool within(const ProbeDifference& difference, const RoundingBound& bound);

}  // namespace lft::cli
