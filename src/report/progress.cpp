#include "src/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/base/text.h"

namespace lft::report {
namespace {

constexpr double kRedraw = 0.05,
                 kQuiet = 5;  // seconds between two updates of a bar, and between two lines
constexpr int64_t kLongestBar = 40, kShortestBar = 6;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// 0:07, 12:34, 1:02:03, 2d 03:04.
std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(std::min(seconds, 1e9));
  char buffer[64];
  if (s >= 86400) {
    snprintf(buffer, sizeof buffer, "%ldd %02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
  } else if (s >= 3600) {
    snprintf(buffer, sizeof buffer, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  } else {
    snprintf(buffer, sizeof buffer, "%ld:%02ld", s / 60, s % 60);
  }
  return buffer;
}

/// A part of the line. If the line is too long, the parts of the highest rank are dropped first.
struct Part {
  int rank;
  std::string text;
};

std::vector<Part> parts_of(const ProgressState& state) {
  const StepMetrics& m = state.metrics;
  std::vector<Part> parts = {
      {0, "step " + std::to_string(m.step) + "/" + std::to_string(state.total_steps)}};
  if (state.epoch >= 0) parts.push_back({4, format_number(state.epoch, "epoch %.2f")});
  parts.push_back({1, format_number(m.loss, "loss %.4f")});
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

std::string bar_text(int64_t cells, int64_t done, int64_t total) {
  const int64_t full = total > 0 ? std::clamp<int64_t>(cells * done / total, 0, cells) : 0;
  return "[" +
         (full > 0
              ? coloured(std::string(static_cast<size_t>(full), '#'), Colour::kGreen, STDERR_FILENO)
              : "") +
         std::string(static_cast<size_t>(cells - full), '.') + "] ";
}

/// The bar before a line, if there is room; at most width - 1 columns.
std::string with_bar(const std::string& line, int64_t done, int64_t total, int64_t width) {
  const int64_t room = width - columns_of(line) - 4;  // brackets, a blank, an empty last column
  if (room >= kShortestBar) return bar_text(std::min(room, kLongestBar), done, total) + line;
  return line.substr(0, static_cast<size_t>(std::max<int64_t>(width - 1, 0)));
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  std::vector<std::string> texts;
  for (const Part& part : parts_of(state)) texts.push_back(part.text);
  if (state.elapsed_s >= 0) texts.push_back(duration_text(state.elapsed_s) + " elapsed");
  if (state.eta_s >= 0) texts.push_back("eta " + duration_text(state.eta_s));
  return join(texts, "  ");
}

std::string progress_bar(const ProgressState& state, int64_t width) {
  std::vector<Part> parts = parts_of(state);
  if (state.elapsed_s >= 0) {
    parts.push_back({3, duration_text(state.elapsed_s) +
                            (state.eta_s >= 0 ? "<" + duration_text(state.eta_s) : "")});
  }
  while (true) {
    std::vector<std::string> texts;
    texts.reserve(parts.size());
    for (const Part& part : parts) texts.push_back(part.text);
    const std::string line = join(texts, " ");
    if (parts.size() == 1 || static_cast<int64_t>(line.size()) + 4 + kShortestBar <= width)
      return with_bar(line, state.metrics.step, state.total_steps, width);
    parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
  }
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)), terminal_(is_terminal(STDERR_FILENO)) {
  if (!options_.clock) options_.clock = steady_seconds;
  start_ = shown_ = options_.clock();
}

void Progress::update(const StepMetrics& metrics) {
  const double now = options_.clock();
  const int64_t done = metrics.step - options_.first_step, total = options_.total_steps;
  state_.metrics = metrics;
  state_.eval_s += metrics.eval_s;
  state_.checkpoint_s += metrics.checkpoint_s;
  state_.total_steps = total;
  state_.elapsed_s = now - start_;
  state_.eta_s = done > 0 ? state_.elapsed_s / static_cast<double>(done) *
                                static_cast<double>(std::max<int64_t>(total - metrics.step, 0))
                          : -1;
  if (options_.steps_per_epoch > 0) {
    state_.epoch =
        static_cast<double>(metrics.step) / static_cast<double>(options_.steps_per_epoch);
  }
  const bool ends = !told_ || metrics.step >= total;
  const bool due = terminal_ ? now - shown_ >= kRedraw
                             : now - shown_ >= kQuiet &&
                                   metrics.step % std::max<int64_t>(options_.plain_every, 1) == 0;
  if (!ends && !due) return;
  told_ = true;
  shown_ = now;
  if (terminal_) {
    show_status(progress_bar(state_, terminal_width(STDERR_FILENO)));
  } else {
    notice(progress_line(state_));
  }
}

void Progress::finish() {
  if (!terminal_ || !told_) return;
  show_status(progress_bar(state_, terminal_width(STDERR_FILENO)));
  keep_status();
  told_ = false;
}

EvalProgress::EvalProgress(int64_t total, std::function<double()> clock)
    : total_(total),
      clock_(clock ? std::move(clock) : steady_seconds),
      terminal_(is_terminal(STDERR_FILENO)),
      start_(clock_()),
      shown_(start_) {}

EvalProgress::~EvalProgress() {
  if (terminal_) show_status("");
}

void EvalProgress::update(int64_t done) {
  const double now = clock_();
  if (now - shown_ < (terminal_ ? kRedraw : kQuiet)) return;
  shown_ = now;
  const double elapsed = now - start_, eta = elapsed /
                                             static_cast<double>(std::max<int64_t>(done, 1)) *
                                             static_cast<double>(total_ - done);
  const std::string line = "evaluation " + std::to_string(done) + "/" + std::to_string(total_) +
                           " " + duration_text(elapsed) + "<" + duration_text(eta);
  if (terminal_) {
    show_status(with_bar(line, done, total_, terminal_width(STDERR_FILENO)));
  } else {
    notice(line);
  }
}

}  // namespace lft::report
