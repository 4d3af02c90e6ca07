// report.html: one file that works offline (Chart.js inlined): curves of loss, LR, grad norm,
// throughput, events, sample answers by their images. Norms of every layer over the steps as a map
// of colours.
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
  std::string metrics_text = {};  // instead of a file, where metrics_path is empty
  std::vector<std::pair<std::string, std::string>> facts =
      {};  // shown at the top: trainable parameters, final loss, ...
  std::vector<ReportAnswer> answers = {};
  std::string answers_of = {};  // which rows they are, as the heading has it
};
/// Reads the metrics and writes the page (atomically). All text is escaped.
void write_report(const std::string& path, const ReportInput& input);

}  // namespace lft::report
