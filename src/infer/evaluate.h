// Loss, exact match and a metric over a dataset, with a record for every sample. The trainer's
// evaluations and `lft eval` use it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/objective/objective.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/infer/eval_result.h"
#include "src/infer/generate.h"
#include "src/infer/metrics.h"
#include "src/text/tokenizer.h"

namespace lft::infer {

struct EvalOptions {
  int64_t batch_size = 16, workers = 4;
  /// Above 0 (train.max_tokens_per_step) batches are limited by tokens: the loss is computed from
  /// packed rows, and prompts are answered in batches of at most this many positions, padding
  /// included.
  int64_t max_tokens = 0;
  GenerateOptions decode = {};         // its callbacks are ignored
  std::vector<std::string> stop = {};  // texts that end an answer (src/infer/stop_strings.h)
  Metric metric = Metric::kExact;
  int64_t limit = 0;    // number of first rows; 0: all
  bool loss = true;     // teacher-forced loss
  bool answers = true;  // generate and compare answers
  at::ScalarType compute = at::kFloat;
  /// Of rows of preferences: its loss and figures take the place of losses per token, and nothing
  /// is answered. Null: rows of single answers.
  const objective::Objective* preference = nullptr;
  int64_t group = 1;  // rows of a global batch, for an objective that uses the KL divergence
  std::string phase = "evaluation";  // shown while it lasts, with its rows (src/base/phase.h)
};

/// Consecutive rows that are evaluated together.
int64_t rows_together(const EvalOptions& options);

/// The most tokens of an answer that is compared with a reference of this many: twice as many and a
/// few more suffice to detect a different one.
int64_t exact_answer_tokens(int64_t reference);

/// Evaluates in dataset order, with adapters and without dropout. `each` gets a record when its
/// batch is done. A signal stops it between two batches and between two tokens.
EvalResult evaluate(family::Model& model, const data::Dataset& dataset,
                    const text::Tokenizer& tokenizer, const data::EncodeOptions& encode,
                    const EvalOptions& options,
                    const std::function<void(const EvalRecord&)>& each = {});

/// The prompt of a row with an answer, without labels.
data::Sample question_of(const data::Sample& sample, const data::Row& row,
                         const text::Tokenizer& tokenizer, const data::EncodeOptions& encode);

}  // namespace lft::infer
