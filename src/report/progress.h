// A progress bar on a terminal (steps, loss, LR, tokens/s, ETA); plain lines where stderr is not one.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "src/report/metrics.h"

namespace lft {

class Progress {
 public:
  explicit Progress(int64_t total_steps, int64_t first_step = 0, int64_t plain_every = 10);
  ~Progress();
  void update(const StepMetrics& metrics);
  void note(const std::string& line);  // a line above the bar

 private:
  bool terminal_;
  int64_t total_, first_, plain_every_, width_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace lft
