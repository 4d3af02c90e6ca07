// The records of an evaluation, and their sums. Plain data.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/objective/objective.h"
#include "src/infer/metrics.h"
#include "src/infer/non_finite.h"
#include "src/text/tokenizer.h"

namespace lft::infer {

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
/// Sums up the records in their order. `preference` as in EvalOptions.
void sum_up(EvalResult& result, Metric metric, const objective::Objective* preference = nullptr);
/// Figures by name: exact_match and those of the metric, or the objective's. Empty if nothing was
/// compared.
std::vector<std::pair<std::string, double>> figures_of(const EvalResult& result, Metric metric);

/// The non-finite rows as one error: the first by name and module, and their number. Needs
/// result.not_finite > 0.
Error not_finite_rows(const EvalResult& result, const text::Tokenizer& tokenizer,
                      at::ScalarType compute);

}  // namespace lft::infer
