// What the model answers to a few rows before and after the run, and how many answers are right.
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
  std::string rows;                         // "rows of data.eval", or that it trained on them
  int64_t asked = 0, right = 0, all = 0;    // of this many rows
  bool stopped = false;                     // a signal came: rows are missing
};

/// Rows of data.eval, of data.train where there is none, at even distances; greedy answers of at
/// most 64 tokens. Writes those to the rows that will be shown to output_dir/answers_before.json.
void record_answers_before(Run& run);
/// The answers to the same rows after `step` as an event of metrics.jsonl, from which the report
/// has those of every evaluation: of `records`, where an evaluation answered them, else asked now.
io::Json shown_answers(Run& run, const std::vector<infer::EvalRecord>& records);
/// The answers now, together with those that were recorded.
SampleAnswers sample_answers(Run& run);

}  // namespace lft::train
