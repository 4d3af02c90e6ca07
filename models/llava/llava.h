// LLaVA-1.5: CLIP ViT -> MLP projector -> Llama. Visual Instruction Tuning (Liu et al. 2023), arXiv
// 2310.03744 for 1.5. Shape letters: b batch, t positions (images expanded), d hidden, v
// vocabulary, n images, c channels, h w pixels, p image positions.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "models/clip/clip.h"
#include "models/llama/llama.h"
#include "models/llava/config.h"
#include "models/llava/projector.h"

namespace lft::llava {

/// One micro-batch. Rows are right-padded; causal attention makes padding after a row invisible to
/// it, so no mask is needed. Or packed: one row, in which the sequences lie one after the other.
struct LlavaBatch {
  at::Tensor input_ids_bt;  // int64 (CPU); every image position holds config.image_token
  at::Tensor labels_bt;     // int64 (CPU), -100 where unsupervised; unshifted (labels[i] is
                            // input_ids[i] or -100). May be undefined
  at::Tensor lengths_b;     // int64, real positions a row (CPU)
  std::shared_ptr<const ops::PackedSequences>
      packed;  // null: padded. The first label of every sequence is -100
  at::Tensor
      pixels_nchw;  // float32, normalised; images in row order. Undefined when the batch has none
};

/// Rows (flat in b * t) whose next token is supervised, in row-major order, and that token: int64
/// [k] each, on the CPU.
struct SupervisedRows {
  at::Tensor rows_k, targets_k;
};
/// Throws kInput for a label that is no token of the model.
SupervisedRows supervised_rows(const at::Tensor& labels_bt, int64_t vocab);

class LlavaImpl : public torch::nn::Module {
 public:
  /// Parameters of `dtype` on `device`, uninitialised and frozen. Where the decoder layers' linear
  /// layers are to hold codes they have no memory yet (device meta): LinearImpl::store brings it.
  LlavaImpl(const LlavaConfig& config, at::ScalarType dtype, at::Device device,
            ops::BaseStorage storage = ops::BaseStorage::kDense);

  /// [n, p, d] projected image features.
  at::Tensor image_features(const at::Tensor& pixels_nchw);
  /// [b, t, d] input embeddings with image features in their places. Throws kInput where image
  /// positions and features differ in number. `features_npd`: image_features() of its pixels, where
  /// they are known already.
  at::Tensor embed(const LlavaBatch& batch, const at::Tensor& features_npd = {});
  /// Log-probabilities (natural log, float32) of the supervised tokens, [k], in row-major order of
  /// the labels. The LM head runs on these positions only, in chunks; the last decoder layer runs
  /// its output projection and MLP on them only.
  at::Tensor supervised_logprobs(const LlavaBatch& batch);
  /// What supervised_logprobs() does after embed(): log-probabilities of `targets_k` after the
  /// kept rows, [k].
  at::Tensor logprobs_behind(const at::Tensor& embeds_btd, const at::Tensor& rows_k,
                             const at::Tensor& targets_k,
                             std::shared_ptr<const ops::PackedSequences> packed);
  /// -sum(supervised_logprobs), float32 scalar, differentiable; the caller divides by the global
  /// count. Zero supervised: exactly 0, no graph.
  at::Tensor loss_sum(const LlavaBatch& batch);
  /// [b, v] float32 logits of each row's last real position (first call fills the cache; later
  /// calls take one new token a row).
  at::Tensor next_logits(const LlavaBatch& batch, llama::KvCache& cache);
  /// [b, t, v] float32 logits of every position. For comparisons and merge checks, not for
  /// training.
  at::Tensor all_logits(const LlavaBatch& batch);

  const LlavaConfig config;
  double neftune_alpha = 0;  // above 0: embed() adds embedding_noise() within a DropoutGuard
  clip::ClipVision vision_tower{nullptr};
  Projector multi_modal_projector{nullptr};
  llama::LlamaForCausalLm language_model{nullptr};
};
TORCH_MODULE(Llava);

/// A parameter a checkpoint must hold, known before any is allocated. `name` is canonical (on-disk
/// spelling of transformers <= 5.22).
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<TensorSpec> llava_tensors(const LlavaConfig& config);
/// The canonical name of a tensor in an HF file ("" for one to ignore: position_ids, inv_freq, tied
/// lm_head). Accepts both CLIP spellings.
std::string llava_canonical_name(const std::string& hf_name, const LlavaConfig& config);
/// The name transformers >= 4.52 gives a module in memory: "language_model.model.layers.0" ->
/// "model.language_model.layers.0" (PEFT dialect D2 is this after "base_model.model.").
std::string llava_peft_name(const std::string& canonical);
/// Canonical module name from a PEFT key's module part in dialect D1, D2 or D3; "" if it is none of
/// them.
std::string llava_from_peft_name(const std::string& peft);
/// Canonical modules whose output reaches no feature layer, so that nothing in them can ever learn:
/// the CLIP layers after the last one used.
std::vector<std::string> llava_unused_modules(const LlavaConfig& config);

}  // namespace lft::llava
