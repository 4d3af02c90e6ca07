// metrics.jsonl: one JSON object on each line, written at once. Numbers round-trip, and non-finite
// values are null. recipes/FORMATS.md describes the keys.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/io/file_handle.h"
#include "src/io/json.h"

namespace lft::report {

struct StepMetrics {
  int64_t step = 0;  // from 1
  double loss = 0, lr = 0, grad_norm = 0, loss_scale = 1;
  std::string precision = "fp32";
  int64_t supervised_tokens = 0, tokens = 0;
  double tokens_per_s = 0, step_s = 0;
  double eval_s = 0, checkpoint_s = 0;  // evaluations and checkpoints since the previous step
  std::vector<std::pair<std::string, double>> lrs = {};     // of all groups except the base group
  std::vector<std::pair<std::string, double>> losses = {};  // of each source in the step
  std::vector<std::pair<std::string, int64_t>> loss_tokens =
      {};                                                    // supervised tokens of these sources
  std::vector<std::pair<std::string, double>> figures = {};  // StepOutcome::figures
  std::string ids_hash = {}, run_hash = {};  // of the step's sample ids; of the run up to this step
};

class MetricsFile {
 public:
  /// Truncates the file to `keep_bytes` (0: a new file) and appends to it. A shorter file keeps its
  /// complete lines.
  MetricsFile(const std::string& path, uint64_t keep_bytes);
  void step(const StepMetrics& metrics);
  /// A line {"event": name, "step": step, ...fields}; `fields` must not contain "loss".
  void event(const std::string& name, int64_t step, const io::Json& fields);
  uint64_t offset() const { return offset_; }  // bytes in the file
  void sync() { file_.sync(); }

 private:
  void append(const std::string& line);
  io::FileHandle file_;
  uint64_t offset_ = 0;
};

}  // namespace lft::report
