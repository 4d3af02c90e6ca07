// A vision-language model: image features are inserted into the token embeddings, the decoder runs
// over them, and the supervised tokens get log-probabilities. Each family implements its image
// features. Shape letters: b batch, t positions (images expanded), d hidden, v vocabulary, k rows.
#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "models/family/batch.h"
#include "models/family/config.h"
#include "models/llama/llama.h"

namespace lft::family {

class ModelImpl;

/// The features of the images of a batch, in the order of its pixels.
struct ImageFeatures {
  at::Tensor features_kd;  // [image positions, d]
  std::vector<at::Tensor>
      deepstack_features_kd;  // each the same shape: added after decoder layer 0, 1, ...
};
/// Concatenates the features of several batches.
ImageFeatures join_features(const std::vector<ImageFeatures>& parts);

/// Features that a source has kept: bytes, and what their computation took.
struct KeptCost {
  int64_t images = 0, bytes = 0;
  double seconds = 0;
};
/// Returns the features of a batch's images, which it may have computed before.
class FeatureSource {
 public:
  virtual ~FeatureSource() = default;
  /// As ModelImpl::image_features().
  virtual ImageFeatures features(ModelImpl& model, const Batch& batch) = 0;
  virtual KeptCost kept() const = 0;
};

/// Rows that are scored and answered.
struct ScoredRows {
  at::Tensor logprobs_k;  // as of ModelImpl::supervised_logprobs()
  at::Tensor logits_bv;   // float32, at the end of each prompt
};

class ModelImpl : public torch::nn::Module {
 public:
  explicit ModelImpl(const ModelConfig& config);

  /// Throws kInput if the model does not support the size of the pixels.
  virtual ImageFeatures image_features(const Batch& batch) = 0;
  /// image_features(), or those of `feature_source` if there is one.
  ImageFeatures features(const Batch& batch);
  /// Of `feature_source`; zeros without one.
  KeptCost kept_features() const;
  /// The number of positions of an image of this shape in the text.
  virtual int64_t image_positions(const ImageShape& image) const = 0;
  /// The input of the decoder: token embeddings with the image features inserted. Throws kInput if
  /// the numbers of image positions and features differ. `known`: features() of the batch, if
  /// already computed.
  llama::DecoderInput embed(const Batch& batch, const ImageFeatures* known = nullptr);
  /// Log-probabilities (natural log, float32) of the supervised tokens, [k], in row-major order of
  /// the labels. The LM head runs on these positions only, in chunks; the last decoder layer runs
  /// its output projection and MLP on them only.
  at::Tensor supervised_logprobs(const Batch& batch);
  /// The part of supervised_logprobs() after embed(): log-probabilities of `targets_k` at the kept
  /// rows, [k].
  at::Tensor logprobs_after(const llama::DecoderInput& input, const at::Tensor& rows_k,
                            const at::Tensor& targets_k);
  /// [b, v] float32 logits at each row's last real position. The first call fills the cache; later
  /// calls take one new token per row. `known` as in embed().
  at::Tensor next_logits(const Batch& batch, llama::KvCache& cache,
                         const ImageFeatures* known = nullptr);
  /// supervised_logprobs() and the first call of next_logits(), for the first prompts[row]
  /// positions of each row, in one pass over a padded batch. The cache then contains the prompts.
  ScoredRows score_and_begin(const Batch& batch, const std::vector<int64_t>& prompts,
                             llama::KvCache& cache, const ImageFeatures* known = nullptr);
  /// Whether a position's state does not depend on later ones, and the cache can be cut at every
  /// position, as score_and_begin() needs.
  bool is_causal() const;
  /// [b, t, v] float32 logits of every position, for comparisons and merge checks, not for
  /// training.
  at::Tensor all_logits(const Batch& batch);
  /// The device of all weights.
  at::Device device() const;

  const ModelConfig config;
  double neftune_alpha = 0;  // above 0: embed() adds embedding_noise() within a DropoutGuard
  llama::LlamaForCausalLm language_model{nullptr};
  std::shared_ptr<FeatureSource> feature_source;  // null: features are computed in each pass

 protected:
  /// Called by the constructor of a family's model after its tower and projector are registered.
  /// Parameters have the options, uninitialised and frozen. With another storage than kDense the
  /// linear layers of the decoder have no memory yet (device meta); LinearImpl::store allocates it.
  void add_decoder(at::TensorOptions options, ops::BaseStorage storage);
  /// Position ids for the rotary embedding, int64 [3, b, t] on the CPU (time, height, width), or
  /// undefined if they are the indices in the sequence. The batch contains the beginnings of its
  /// sequences; generated tokens follow one by one.
  virtual at::Tensor positions(const Batch& batch) const;

 private:
  /// features() in the order of the text.
  ImageFeatures shown_features(const Batch& batch);
};
using Model = std::shared_ptr<ModelImpl>;

}  // namespace lft::family
