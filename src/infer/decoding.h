// Continuous batching: answers are decoded together, one token each at a time; new ones join and
// finished ones leave between two tokens. It uses ids and pixels, no text.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "models/family/model.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/infer/non_finite.h"

namespace lft::infer {

/// Natural logarithms of probabilities in the model's own distribution: before temperature, top_k,
/// top_p and the repetition penalty.
struct TokenScores {
  double logprob = 0;                                // of the new token
  std::vector<std::pair<int64_t, double>> top = {};  // the most likely ids, the first one highest
};

/// Sampling options of one answer.
struct GenerateOptions {
  int64_t max_new_tokens = 256;
  double temperature = 0, top_p = 1;  // temperature 0: greedy; top_k and top_p are ignored
  int64_t top_k = 0;                  // 0: all
  double repetition_penalty = 1;      // for ids of the prompt and of the answer so far
  uint64_t seed = 0;
  /// Whether an answer ends with its last id for a reason other than an end token; the id is kept.
  std::function<bool(const std::vector<int64_t>& answer)> stops = {};
  std::function<void(size_t key, int64_t id)>
      on_token;            // called for every new id immediately (chat prints while it decodes)
  int64_t top_scores = 0;  // number of the most likely ids in TokenScores
  /// If set, called before on_token for the same id.
  std::function<void(size_t key, TokenScores scores)> on_scores = {};
};

/// Samples from softmax(logits / temperature), limited to the top_k most likely tokens (and ties
/// with the last of them), then to the smallest set with probability top_p, as in transformers.
/// `uniform` in [0, 1) selects the token; temperature 0 selects the largest logit, the first of
/// equal ones.
int64_t pick_token(const at::Tensor& logits_v, const GenerateOptions& options, double uniform);

/// transformers' RepetitionPenaltyLogitsProcessor: logits of `ids`, each once, are divided by the
/// penalty if they are above 0, otherwise multiplied. In place, float32 on the CPU.
void penalise_repetition(at::Tensor& logits_v, const std::vector<int64_t>& ids, double penalty);

/// A finished answer: ended by an end token, which is not part of it; by options.stops; after
/// max_new_tokens or at the model's last position; or because the logits of its next token are not
/// finite.
struct FinishedAnswer {
  size_t key = 0;
  bool by_limit = false;      // max_new_tokens, or the last position
  bool by_end_token = false;  // it was sampled, and is not in the answer's ids
  std::optional<NonFinite> bad = {};
};

class Decoding {
 public:
  struct Prompt {
    size_t key = 0;  // chosen by the caller, for on_token and FinishedAnswer
    const data::Sample* sample = nullptr;
    GenerateOptions options;
    /// If set, a row that begins with the sample's ids, whose supervised tokens are scored in the
    /// same pass; set for all prompts of a call or for none, and only if the model is_causal().
    const data::Sample* whole = nullptr;
    at::Tensor* logprobs = nullptr;  // receives them: float32 [supervised tokens], on the CPU
  };

  Decoding(family::Model& model, const data::EncodeOptions& encode, at::ScalarType compute);
  /// Processes the prompts in one pass and samples the first token of each; consecutive prompts of
  /// the same sample object are processed once. kInput if a prompt leaves no position for an
  /// answer; then none of them has started.
  std::vector<FinishedAnswer> begin(const std::vector<Prompt>& prompts);
  /// Decodes one more token of each open answer.
  std::vector<FinishedAnswer> step();
  /// Cancels this answer, if it is open.
  void drop(size_t key);
  size_t open() const { return rows_.size(); }

 private:
  struct Row {
    size_t key = 0;
    int64_t left = 0;  // maximum number of further tokens
    GenerateOptions options;
    std::mt19937_64 generator;
    std::vector<int64_t> ids;  // of prompt and answer
    std::shared_ptr<const data::Sample> prompt;
  };
  /// Samples a token for each row from its logits, and returns the indices of the rows that
  /// continue.
  std::vector<int64_t> draw(std::vector<Row>& rows, at::Tensor logits_bv,
                            std::vector<FinishedAnswer>& ended) const;
  /// Runs the prompts, each one with its whole row if it has one, and returns the logits of their
  /// next tokens, float32 on the CPU.
  at::Tensor run_prompts(const std::vector<Prompt>& prompts, llama::KvCache& cache);
  void keep(const std::vector<int64_t>& places);
  /// Finds why the logits after this row's ids are not finite, by running the row alone.
  NonFinite explain(const Row& row) const;

  family::Model& model_;
  const data::EncodeOptions& encode_;
  const at::ScalarType compute_;
  std::vector<Row> rows_;
  llama::KvCache cache_;
};

}  // namespace lft::infer
