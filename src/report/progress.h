// A progress bar on a terminal (steps, loss, LR, tokens/s, ETA); plain lines where stderr is not
// one.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "src/report/metrics.h"

namespace lft::report {

class Progress {
 public:
  /// `total_steps` counts from the start of the run; `first_step` of them were done before this
  /// process.
  explicit Progress(int64_t total_steps, int64_t first_step = 0, int64_t plain_every = 10);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // leaves the last state of the bar on its own line
  void update(const StepMetrics& metrics);
  void note(const std::string& line);  // a line above the bar

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  int64_t total_, first_, plain_every_;
  std::string bar_;  // what stands on the terminal's last line
  Clock::time_point start_, drawn_;
};

/// "step 10/400  loss 1.2345  lr 2.0e-04  123 tok/s  eta 0:12"; eta_s < 0 leaves the last part out.
std::string progress_line(const StepMetrics& metrics, int64_t total, double eta_s);
/// The same after "[####......] ", cut to `width` columns; a narrow terminal gets a shorter bar,
/// then none, then fewer parts.
std::string progress_bar(const StepMetrics& metrics, int64_t total, double eta_s, int64_t width);

}  // namespace lft::report
