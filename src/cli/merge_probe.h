// Compares the logits of two models on a few synthetic prompts and an image, by position. Shape
// letters: b rows, t positions, d hidden, k positions, v vocabulary.
#pragma once
#include <string>
#include <vector>

#include "models/family/model.h"
#include "src/hf/adapter/adapter.h"

namespace lft::cli {

/// Token ids and pixels are a function of the config: rows of text, and a row with an image if the
/// positions allow one.
std::vector<family::Batch> probe_batches(const family::ModelConfig& config);
/// The result of one model on the batches.
struct Probed {
  at::Tensor logits_kv;  // float32 on the CPU, of the real positions of all batches
  std::vector<family::ImageFeatures> features;  // of each batch's images
};
/// Runs one pass through the decoder, so that each weight is used once. The decoder gets a few of
/// an image's positions, spread over it. `known` are image features that have been computed before.
Probed probe_model(family::Model& model, const std::vector<family::Batch>& batches,
                   const std::vector<family::ImageFeatures>& known = {});
/// The same for the model in a directory, with an adapter if one is given. The decoder's layers are
/// read when the pass reaches them.
Probed probe_folder(const std::string& model_path, const std::string& adapter_path,
                    at::Device device, const std::vector<family::ImageFeatures>& known = {});

struct ProbeDifference {
  double max_abs = 0, mean_kl = 0, top1_agreement = 1;  // kl: natural log, of `got` from `want`
  double largest_logit = 0;                             // of `want`, absolute
  int64_t positions = 0;
};
ProbeDifference compare_logits(const at::Tensor& want_kv, const at::Tensor& got_kv);

/// The largest difference from base + adapter that rounding explains. Every merged weight has a
/// relative error of half a unit in the last place, u = 2^-12 in F16 and 2^-9 in BF16; over the
/// layers it grows to some tens of u of the largest logit. In F32 the order of summation dominates.
/// (A model of two layers measured 2 u.) A wrong scale or a missing layer exceeds it by far.
struct RoundingBound {
  double relative_max_abs, mean_kl;
};
RoundingBound rounding_bound(io::DType dtype);
/// A NaN fails it.
bool within(const ProbeDifference& difference, const RoundingBound& bound);

}  // namespace lft::cli
