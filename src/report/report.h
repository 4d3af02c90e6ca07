// report.html: one file that works offline (Chart.js inlined): what the run is and a verdict,
// answers or pairs with their images, curves of loss, learning rate, gradient norm and throughput,
// norms of every layer over the steps as a colour map, warnings and incidents, and all other
// events.
#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/report/verdict.h"

namespace lft::report {

/// Of a pair of answers: the log-probability of each, and the reward margin.
struct PairFigures {
  double chosen = NAN, rejected = NAN, margin = NAN;
};
struct ReportPair {
  std::string rejected;  // the other answer; that of ReportAnswer::reference is the chosen one
  PairFigures before = {}, after = {};  // NaN: not known
};
struct ReportAnswer {
  std::string id, question, reference, answer;
  std::string image_png;  // raw PNG or JPEG bytes, embedded as a data URL; may be empty
  std::optional<std::string> before = {};  // the answer before training, if it is known
  std::string note = {};  // about the images: that there are more, or why none is shown
  bool answered = true;   // false: `answer` is that of the last event eval_answers
  std::optional<ReportPair> pair = {};
};
using ReportFacts = std::vector<std::pair<std::string, std::string>>;
struct ReportInput {
  std::string title = {}, metrics_path = {}, recipe_text = {}, environment_json = {};
  std::string metrics_text = {};   // used if metrics_path is empty
  ReportFacts facts = {};          // shown at the top; a run's time and best figure are added
  std::optional<RunEnd> end = {};  // of a run, for the verdict; none: no verdict
  ReportFacts details = {};        // shown at the end
  std::vector<ReportAnswer> answers = {};
  std::string answers_of = {};  // which rows they are, for the heading
};
/// Reads the metrics and writes the page (atomically). All text is escaped. The page of a run in
/// progress contains the time and reloads itself.
void write_report(const std::string& path, const ReportInput& input);

}  // namespace lft::report
