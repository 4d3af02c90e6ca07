// The model's answers to a few rows before and after the run, and how many are right; of pairs also
// the log-probabilities of both answers and the reward margin.
#pragma once
#include <string>
#include <vector>

#include "src/infer/evaluate.h"
#include "src/io/json.h"
#include "src/report/report.h"
#include "src/train/run/run.h"

namespace lft::train {

struct SampleAnswers {
  std::vector<report::ReportAnswer> shown;  // a few, spread over the rows
  std::string rows;                         // rows_name()
  int64_t asked = 0, right = 0, all = 0;    // rows answered, answered correctly (0 of pairs, none
                                            // of which is right), in total
  bool stopped = false;                     // interrupted by a signal: rows are missing
};

/// How many rows are answered before training or shown after an evaluation, one by one; how many
/// after training, in batches; and the most tokens of an answer.
struct AnswerCounts {
  double shown = 0, at_end = 0, batch = 0, most_tokens = 0;
};
AnswerCounts answer_counts(const Run& run);

/// Evenly spaced rows of data.eval, or of data.train without one; greedy answers of at most 64
/// tokens; no rows with model.init: random. Writes the answers for the report to
/// output_dir/answers_before.json.
void record_answers_before(Run& run);
/// The rows of that file with their images, for a report during the run; empty without the file.
std::vector<report::ReportAnswer> rows_before(const Run& run);
/// "held-out rows", or that they are training rows.
std::string rows_name(const Run& run);
/// The answers to the same rows after `step` as an event of metrics.jsonl, from which the report
/// shows those of every evaluation: from `records` if an evaluation has them, else generated now,
/// which is shown as `phase`.
io::Json shown_answers(Run& run, const std::vector<infer::EvalRecord>& records,
                       const std::string& phase);
/// The current answers together with the recorded ones.
SampleAnswers sample_answers(Run& run);

}  // namespace lft::train
