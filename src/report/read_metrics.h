// The content of a metrics.jsonl, and curves over its steps.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/report/series.h"

namespace lft::report {

/// After a resume a step may occur twice: the later line is used.
struct Metrics {
  std::map<int64_t, io::Json> steps = {};
  std::vector<io::Json> events = {};
  std::map<std::string, std::map<int64_t, io::Json>> layers =
      {};                                    // records of every layer's norm, by event and step
  std::map<int64_t, io::Json> answers = {};  // to the shown rows, by the step of the evaluation
  int64_t unreadable = 0;                    // lines

  int64_t last_step() const { return steps.empty() ? 0 : steps.rbegin()->first; }
};
/// `path` is for messages only. Unreadable lines are counted and skipped.
Metrics read_metrics(const std::string& text, const std::string& path);

/// A number of each step; NaN where it is missing or not finite.
Series series_of(const Metrics& metrics, const char* key);
/// The numbers of an object in each line, by name: "lrs" has groups with a separate learning rate,
/// "losses" the sources.
std::map<std::string, Series> series_by_name(const Metrics& metrics, const char* key);
/// A figure of the evaluations: eval_loss, or that of a metric. Finite values only.
Series eval_series(const Metrics& metrics, const std::string& figure);
/// The last event of that name; null if there is none.
const io::Json* last_event(const Metrics& metrics, const std::string& name);

}  // namespace lft::report
