#include "src/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "src/base/bar.h"
#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/base/text.h"
#include "src/report/figure_text.h"

namespace lft::report {
namespace {

constexpr double kRedraw = 0.05,
                 kQuiet = 5;  // seconds between two updates of a bar, and between two lines

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A part of the line. If the line is too long, the parts of the highest rank are dropped first.
struct BarPart {
  int rank;
  std::string text;
};

std::vector<BarPart> parts_of(const ProgressState& state) {
  const StepMetrics& m = state.metrics;
  std::vector<BarPart> parts = {
      {0, "step " + std::to_string(m.step) + "/" + std::to_string(state.total_steps)}};
  if (state.epoch >= 0) parts.push_back({4, format_number(state.epoch, "epoch %.2f")});
  if (!state.stepped) return parts;
  parts.push_back({1, format_number(m.loss, "loss %.4f")});
  for (const auto& [name, value] : m.figures) {
    if (name == "reward_accuracy" && !at_reference(m.figures))
      parts.push_back({2, format_number(value, "accuracy %.2f")});
    if (name == "reward_margin") parts.push_back({3, format_number(value, "margin %.3g")});
  }
  if (std::isfinite(state.eval_loss))
    parts.push_back({2, format_number(state.eval_loss, "eval %.4f")});
  parts.push_back({5, format_number(m.grad_norm, "grad %.3g")});
  parts.push_back({6, format_number(m.lr, "lr %.1e")});
  parts.push_back({7, format_number(m.tokens_per_s, "%.0f tok/s")});
  if (state.eval_s >= 1) parts.push_back({8, "evaluations " + duration_text(state.eval_s)});
  if (state.checkpoint_s >= 1)
    parts.push_back({9, "checkpoints " + duration_text(state.checkpoint_s)});
  return parts;
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  std::vector<std::string> texts;
  for (const BarPart& part : parts_of(state)) texts.push_back(part.text);
  if (state.elapsed_s >= 0) texts.push_back(duration_text(state.elapsed_s) + " elapsed");
  if (state.eta_s >= 0) texts.push_back("eta " + duration_text(state.eta_s));
  return join(texts, "  ");
}

std::string progress_bar(const ProgressState& state, int64_t width) {
  std::vector<BarPart> parts = parts_of(state);
  if (state.elapsed_s >= 0) {
    parts.push_back({3, duration_text(state.elapsed_s) +
                            (state.eta_s >= 0 ? "<" + duration_text(state.eta_s) : "")});
  }
  while (true) {
    std::vector<std::string> texts;
    texts.reserve(parts.size());
    for (const BarPart& part : parts) texts.push_back(part.text);
    const std::string line = join(texts, " ");
    if (parts.size() == 1 || static_cast<int64_t>(line.size()) + 4 + kShortestBar <= width)
      return with_bar(line, state.metrics.step, state.total_steps, width);
    parts.erase(std::ranges::max_element(parts, {}, &BarPart::rank));
  }
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)), terminal_(is_terminal(STDERR_FILENO)) {
  live_clock_ = !options_.clock;
  if (!options_.clock) options_.clock = steady_seconds;
  start_ = shown_ = updated_ = options_.clock();
}

void Progress::begin() {
  {
    const std::lock_guard lock(mutex_);
    start_ = shown_ = updated_ = options_.clock();
    state_.metrics.step = options_.first_step;
    state_.total_steps = options_.total_steps;
    state_.stepped = false;
    set_epoch();
  }
  if (live_clock_) live_.emplace([this](int64_t width) { return text(width); }, "after this step");
  show_status(text(terminal_width(STDERR_FILENO)));
}

void Progress::eval_loss(double loss) {
  const std::lock_guard lock(mutex_);
  state_.eval_loss = loss;
}

/// Between two steps: what is known of the last one. A plain line is left to update() if the steps
/// between two lines are limited and this one is not a long one.
std::string Progress::text(int64_t width) {
  const std::lock_guard lock(mutex_);
  const double now = options_.clock();
  if (width == 0 && options_.plain_every > 1 && now - updated_ < kQuiet) return "";
  set_times(now);
  shown_ = now;
  return width == 0 ? progress_line(state_) : progress_bar(state_, width);
}

void Progress::set_times(double now) {
  const int64_t done = state_.metrics.step - options_.first_step;
  state_.elapsed_s = now - start_;
  state_.eta_s = done <= 0 ? -1
                           : (updated_ - start_) / static_cast<double>(done) *
                                 static_cast<double>(std::max<int64_t>(
                                     options_.total_steps - state_.metrics.step, 0));
}

void Progress::set_epoch() {
  if (options_.steps_per_epoch <= 0) return;
  state_.epoch =
      static_cast<double>(state_.metrics.step) / static_cast<double>(options_.steps_per_epoch);
}

void Progress::update(const StepMetrics& metrics) {
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    const double now = updated_ = options_.clock();
    state_.metrics = metrics;
    state_.stepped = true;
    state_.eval_s += metrics.eval_s;
    state_.checkpoint_s += metrics.checkpoint_s;
    state_.total_steps = options_.total_steps;
    set_times(now);
    set_epoch();
    const bool ends = !told_ || metrics.step >= options_.total_steps;
    const bool due = terminal_ ? now - shown_ >= kRedraw
                               : now - shown_ >= kQuiet &&
                                     metrics.step % std::max<int64_t>(options_.plain_every, 1) == 0;
    if (!ends && !due) return;
    told_ = true;
    shown_ = now;
    line = terminal_ ? progress_bar(state_, terminal_width(STDERR_FILENO)) : progress_line(state_);
  }
  if (terminal_) {
    show_status(line);
  } else {
    notice(line);
  }
}

void Progress::finish() {
  live_.reset();
  if (!terminal_ || !told_) return;
  show_status(progress_bar(state_, terminal_width(STDERR_FILENO)));
  keep_status();
  told_ = false;
}

}  // namespace lft::report
