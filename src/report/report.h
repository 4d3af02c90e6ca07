// report.html: one file that works offline (Chart.js inlined): curves of loss, learning rate,
// gradient norm and throughput, events, sample answers with their images, and norms of every layer
// over the steps as a colour map.
#pragma once
#include <string>
#include <vector>

namespace lft::report {

struct ReportAnswer {
  std::string id, question, reference, answer;
  std::string image_png;    // raw PNG or JPEG bytes, embedded as a data URL; may be empty
  std::string before = {};  // the answer before training; empty: not known
};
struct ReportInput {
  std::string title = {}, metrics_path = {}, recipe_text = {}, environment_json = {};
  std::string metrics_text = {};  // used if metrics_path is empty
  std::vector<std::pair<std::string, std::string>> facts =
      {};  // shown at the top: trainable parameters, final loss, ...
  std::vector<ReportAnswer> answers = {};
  std::string answers_of = {};  // which rows they are, for the heading
};
/// Reads the metrics and writes the page (atomically). All text is escaped.
void write_report(const std::string& path, const ReportInput& input);

}  // namespace lft::report
