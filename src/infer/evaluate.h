// Loss and exact match over a dataset, with a record for every sample. Used by the trainer's
// periodic eval and by `lft eval`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "src/data/dataset.h"
#include "src/text/tokenizer.h"

namespace lft::infer {

struct EvalOptions {
  int64_t batch_size = 16, workers = 4;
  /// Above 0 (train.max_tokens_per_step) a batch is cut by tokens: the loss is computed from packed
  /// rows, and prompts are asked as many at a time as have no more positions, padding counted,
  /// unless one alone has.
  int64_t max_tokens = 0;
  int64_t max_new_tokens = 256;
  int64_t limit = 0;    // first rows only; 0: all
  bool loss = true;     // teacher-forced loss
  bool answers = true;  // decode greedily and compare
  at::ScalarType compute = at::kFloat;
};

struct EvalRecord {
  int64_t index = 0;
  std::string id, question, reference, answer;  // of the last turn that truncation left an answer
  bool answered = false;  // not where it left none: there is nothing to compare with
  bool match = false;     // answer up to its end token equals the reference, both trimmed
  double loss = 0;        // mean over the sample's supervised tokens; 0 where it has none
  int64_t supervised = 0;
};

struct EvalResult {
  int64_t samples = 0, supervised = 0, answered = 0;
  double loss = 0, exact_match = 0;  // means over all supervised tokens, over the answered samples
  bool stopped = false;              // a signal came; the figures are of the samples before it
  std::vector<EvalRecord> records;
  std::vector<std::string> skipped;  // bad samples left out, with the reason (encode.skip_bad)
  std::vector<int64_t> skipped_indices = {};  // of the same
};
/// The figures of records, which are summed in their order.
void sum_up(EvalResult& result);

/// In dataset order. `each` sees a record as soon as its batch is done. Adapters in the model are
/// used; no dropout.
EvalResult evaluate(family::Model& model, const data::Dataset& dataset,
                    const text::Tokenizer& tokenizer, const data::EncodeOptions& encode,
                    const EvalOptions& options,
                    const std::function<void(const EvalRecord&)>& each = {});

/// The sample up to its last answer: what a model is given to generate from. Empty without a
/// supervised token.
data::Sample prompt_of(const data::Sample& sample);
std::string trim(const std::string& text);

}  // namespace lft::infer
