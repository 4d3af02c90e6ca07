// Progress of a run: a bar on the terminal's last line, or a line every few seconds if stderr is
// not a terminal. Other phases are shown by src/base/phase.h.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/phase.h"
#include "src/report/metrics.h"

namespace lft::report {

struct ProgressOptions {
  int64_t total_steps = 0, first_step = 0;  // of the whole run; those before this process
  int64_t steps_per_epoch = 0;              // 0: epochs are not shown
  int64_t plain_every = 1;                  // minimum number of steps between two plain lines
  std::function<double()> clock = {};       // seconds; empty: the steady clock
};

/// The figures of one step; unknown ones are not shown.
struct ProgressState {
  StepMetrics metrics;
  int64_t total_steps = 0;
  bool stepped = true;     // false: no step is done yet, so that its figures are unknown
  double epoch = -1;       // passes over the data so far
  double eval_loss = NAN;  // the newest
  double elapsed_s = -1, eta_s = -1;
  double eval_s = 0, checkpoint_s = 0;  // shown after one second
};
/// "step 10/400  epoch 0.25  loss 1.2345  eval 1.1034  grad 0.53  lr 2.0e-04  123 tok/s  0:12
/// elapsed  eta 0:12".
std::string progress_line(const ProgressState& state);
/// "[####......] step 10/400 epoch 0.25 ...", less than `width` columns: a narrow terminal has
/// fewer parts and a shorter or no bar.
std::string progress_bar(const ProgressState& state, int64_t width);

class Progress {
 public:
  explicit Progress(ProgressOptions options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }
  /// Shows the bar before the first step; the time counts from here, otherwise from construction.
  /// From now on the bar is also redrawn between two steps, unless there is a clock in the options.
  void begin();
  /// The first and the last step always have a line.
  void update(const StepMetrics& metrics);
  /// Sets the value shown from now on.
  void eval_loss(double loss);
  /// Keeps the last state of the bar as a line.
  void finish();

 private:
  std::string text(int64_t width);  // width 0: a plain line
  void set_times(double now);
  void set_epoch();

  ProgressOptions options_;
  std::mutex mutex_;  // of the following
  ProgressState state_;
  double start_ = 0, shown_ = 0, updated_ = 0;  // shown_: when the last line was
  bool terminal_, told_ = false, live_clock_ = true;
  std::optional<Shown> live_;
};

}  // namespace lft::report
