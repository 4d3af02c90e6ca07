// Loss, exact match and a metric over a dataset, with a record for every sample. The trainer's
// evaluations and `lft eval` use it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.h"
#include "models/objective/objective.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"
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

struct EvalRecord {
  int64_t index = 0;
  std::string id, question, reference, answer;  // last turn with an answer after truncation
  bool answered = false;                        // false without a reference
  bool match = false;  // answer up to its end token equals a reference, both trimmed
  bool open = false;   // the row ends with its question: it has no loss
  std::vector<std::string> references = {};  // references for the metric: the answers that the
                                             // row lists, else its own; none: not compared
  double score = 0;  // score of the metric; for captions CIDEr, set by sum_up()
  double loss = 0;   // mean over the sample's supervised tokens; 0 if it has none
  int64_t supervised = 0;
  std::optional<NonFinite> bad = {};  // its loss is NaN then, or it has no answer
  std::vector<double> figures = {};   // of a preference: the addends of the objective's figures
};

struct EvalResult {
  int64_t samples = 0, supervised = 0, answered = 0, compared = 0;
  double loss = 0, exact_match = 0;  // means over all supervised tokens, over the compared samples;
                                     // NaN if there is none
  double score = 0, bleu4 = 0;       // of the metric over the same; bleu4 for captions
  objective::Figures preference_figures = {};  // loss is then the objective's, a mean over the
                                               // pairs or rows
  int64_t not_finite = 0;                      // records with `bad`
  bool stopped = false;  // a signal was received; the figures cover the samples before it
  std::vector<EvalRecord> records;
  std::vector<std::string> skipped;  // skipped bad samples, with the reason (encode.skip_bad)
  std::vector<int64_t> skipped_indices = {};  // for the same
};
/// Consecutive rows that are evaluated together.
int64_t rows_together(const EvalOptions& options);
/// Sums up the records in their order. `preference` as in EvalOptions.
void sum_up(EvalResult& result, Metric metric, const objective::Objective* preference = nullptr);
/// Figures by name: exact_match and those of the metric, or the objective's. Empty if nothing was
/// compared.
std::vector<std::pair<std::string, double>> figures_of(const EvalResult& result, Metric metric);

/// The non-finite rows as one error: the first by name and module, and their number. Needs
/// result.not_finite > 0.
Error not_finite_rows(const EvalResult& result, const text::Tokenizer& tokenizer,
                      at::ScalarType compute);

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
