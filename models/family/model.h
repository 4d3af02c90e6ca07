// A vision-language model as who trains or asks it sees it: image features into the embeddings, the
// decoder over them, log-probabilities of what is supervised. A family says what its images become.
// Shape letters: b batch, t positions (images expanded), d hidden, v vocabulary, k rows.
#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "models/family/batch.h"
#include "models/family/config.h"
#include "models/llama/llama.h"

namespace lft::family {

/// Of all images of a batch, in order.
struct ImageFeatures {
  at::Tensor features_kd;  // [image positions, d]
  std::vector<at::Tensor>
      deepstack_features_kd;  // each the same shape: added after decoder layer 0, 1, ...
};
/// Of several batches, one after the other.
ImageFeatures join_features(const std::vector<ImageFeatures>& parts);

class ModelImpl : public torch::nn::Module {
 public:
  explicit ModelImpl(const ModelConfig& config);

  /// kInput where the pixels are not of a size that the model takes.
  virtual ImageFeatures image_features(const Batch& batch) = 0;
  /// Positions that an image of this shape takes in the text.
  virtual int64_t image_positions(const ImageShape& image) const = 0;
  /// What the decoder reads: embeddings with image features in their places. Throws kInput where
  /// image positions and features differ in number. `known`: image_features() of the batch, where
  /// they are there already.
  llama::DecoderInput embed(const Batch& batch, const ImageFeatures* known = nullptr);
  /// Log-probabilities (natural log, float32) of the supervised tokens, [k], in row-major order of
  /// the labels. The LM head runs on these positions only, in chunks; the last decoder layer runs
  /// its output projection and MLP on them only.
  at::Tensor supervised_logprobs(const Batch& batch);
  /// What supervised_logprobs() does after embed(): log-probabilities of `targets_k` after the
  /// kept rows, [k].
  at::Tensor logprobs_after(const llama::DecoderInput& input, const at::Tensor& rows_k,
                            const at::Tensor& targets_k);
  /// [b, v] float32 logits of each row's last real position (first call fills the cache; later
  /// calls take one new token a row). `known`: as embed() takes them.
  at::Tensor next_logits(const Batch& batch, llama::KvCache& cache,
                         const ImageFeatures* known = nullptr);
  /// [b, t, v] float32 logits of every position. For comparisons and merge checks, not for
  /// training.
  at::Tensor all_logits(const Batch& batch);
  /// Where the decoder's weights are, and all others.
  at::Device device() const;

  const ModelConfig config;
  double neftune_alpha = 0;  // above 0: embed() adds embedding_noise() within a DropoutGuard
  llama::LlamaForCausalLm language_model{nullptr};

 protected:
  /// For the constructor of a family's model, after its tower and projector: parameters of the
  /// options, uninitialised and frozen. Where the decoder layers' linear layers are to hold codes
  /// they have no memory yet (device meta): LinearImpl::store brings it.
  void add_decoder(at::TensorOptions options, ops::BaseStorage storage);
  /// Positions of each token for the rotary embedding, int64 [3, b, t] on the CPU (time, height,
  /// width), or undefined where a token's position is its place in its sequence. Of a batch that
  /// begins its sequences; tokens of an answer follow one by one.
  virtual at::Tensor positions(const Batch& batch) const;
};
using Model = std::shared_ptr<ModelImpl>;

}  // namespace lft::family
