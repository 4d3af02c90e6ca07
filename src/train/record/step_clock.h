// The wall time between two steps, split into the step and the other work.
#pragma once
#include <chrono>

namespace lft::train {

struct StepTimes {
  double step_s = 0;  // since the last step, without the other two; includes waiting for data
  double eval_s = 0, checkpoint_s = 0;
};

class StepClock {
 public:
  /// Its lifetime is added to one of the fields. Not nested.
  class Span {
   public:
    Span(StepClock& clock, double StepTimes::*field) : clock_(clock), field_(field) {}
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span() { clock_.times_.*field_ += seconds(begin_, Clock::now()); }

   private:
    using Clock = std::chrono::steady_clock;
    StepClock& clock_;
    double StepTimes::*const field_;
    const Clock::time_point begin_ = Clock::now();
  };

  /// The times since the last lap, or since construction.
  StepTimes lap() {
    const Clock::time_point now = Clock::now();
    StepTimes times = times_;
    times.step_s = seconds(last_, now) - times.eval_s - times.checkpoint_s;
    last_ = now;
    times_ = {};
    return times;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  Clock::time_point last_ = Clock::now();
  StepTimes times_;
};

}  // namespace lft::train
