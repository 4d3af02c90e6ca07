// Answers that grow together, a token each at a time; new ones join and ended ones leave between
// two tokens. Knows ids and pixels, no text.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/infer/non_finite.h"

namespace lft::infer {

/// How one answer is drawn.
struct GenerateOptions {
  int64_t max_new_tokens = 256;
  double temperature = 0, top_p = 1;  // temperature 0: greedy; top_k and top_p are not looked at
  int64_t top_k = 0;                  // 0: all
  double repetition_penalty = 1;      // of ids of the prompt and of the answer so far
  uint64_t seed = 0;
  /// Whether an answer ends with its last id, for another reason than an end token; that id is
  /// kept.
  std::function<bool(const std::vector<int64_t>& answer)> stops = {};
  std::function<void(size_t key, int64_t id)>
      on_token;  // called for every new id as it comes (chat prints while it decodes)
};

/// One draw from softmax(logits / temperature), cut to the top_k likeliest tokens (and what equals
/// the last of them), then to the smallest set that holds top_p, as transformers' warpers do.
/// `uniform` in [0, 1) decides; temperature 0 takes the largest logit, the first of equals.
int64_t pick_token(const at::Tensor& logits_v, const GenerateOptions& options, double uniform);

/// transformers' RepetitionPenaltyLogitsProcessor: logits of `ids`, each once, are divided by the
/// penalty where they are above 0, else multiplied. Of float32 on the CPU, in place.
void penalise_repetition(at::Tensor& logits_v, const std::vector<int64_t>& ids, double penalty);

/// An answer that has come to its end: with an end token of the encoding, which is no part of it;
/// because options.stops says so; after max_new_tokens, or at the model's last position; or because
/// the logits of its next token are not finite, from which nothing can be drawn.
struct Ended {
  size_t key = 0;
  bool by_limit = false;      // max_new_tokens, or the last position
  bool by_end_token = false;  // it was drawn, and is not among the answer's ids
  std::optional<NonFinite> bad = {};
};

class Decoding {
 public:
  struct Prompt {
    size_t key = 0;  // of its choice: what on_token and Ended call the answer
    const data::Sample* sample = nullptr;
    GenerateOptions options;
  };

  Decoding(family::Model& model, const data::EncodeOptions& encode, at::ScalarType compute);
  /// Reads the prompts, in one pass, and draws the first token of each. kInput when a prompt alone
  /// leaves no position; then none of them was begun.
  std::vector<Ended> begin(const std::vector<Prompt>& prompts);
  /// One token more for each open answer.
  std::vector<Ended> step();
  /// Nothing more of this answer, if it is open.
  void drop(size_t key);
  size_t open() const { return rows_.size(); }

 private:
  struct Row {
    size_t key = 0;
    int64_t left = 0;  // tokens that may still come
    GenerateOptions options;
    std::mt19937_64 generator;
    std::vector<int64_t> ids;  // of prompt and answer
    std::shared_ptr<const data::Sample> prompt;
  };
  /// Draws a token for each row, whose logits are given in their order. Returns the places of those
  /// that go on.
  std::vector<int64_t> draw(std::vector<Row>& rows, at::Tensor logits_bv,
                            std::vector<Ended>& ended) const;
  void keep(const std::vector<int64_t>& places);
  /// Why the logits after this row's ids are not finite: the row runs again, alone.
  NonFinite explain(const Row& row) const;

  family::Model& model_;
  const data::EncodeOptions& encode_;
  const at::ScalarType compute_;
  std::vector<Row> rows_;
  llama::KvCache cache_;
};

}  // namespace lft::infer
