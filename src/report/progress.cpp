#include "src/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace lft::report {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(50);

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

int64_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// The terminal may go away under a run; that is no reason to stop it.
void write_terminal(const std::string& text) {
  const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(ignored);
}

}  // namespace

std::string progress_line(const StepMetrics& m, int64_t total, double eta_s) {
  std::string line = "step " + std::to_string(m.step) + "/" + std::to_string(total) +
                     format_number(m.loss, "  loss %.4f") + format_number(m.lr, "  lr %.1e") +
                     format_number(m.tokens_per_s, "  %.0f tok/s");
  if (eta_s >= 0) line += "  eta " + duration_text(eta_s);
  return line;
}

std::string progress_bar(const StepMetrics& m, int64_t total, double eta_s, int64_t width) {
  constexpr int64_t kLongest = 40, kShortest = 8;
  const std::string line = progress_line(m, total, eta_s);
  const int64_t room = width - static_cast<int64_t>(line.size()) -
                       4;  // brackets, a blank, and the last column stays free
  if (room < kShortest) return line.substr(0, static_cast<size_t>(std::max<int64_t>(width - 1, 0)));
  const int64_t cells = std::min(room, kLongest);
  const int64_t full = total > 0 ? std::clamp<int64_t>(cells * m.step / total, 0, cells) : 0;
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(cells - full), '.') + "] " + line;
}

Progress::Progress(int64_t total_steps, int64_t first_step, int64_t plain_every)
    : terminal_(isatty(STDERR_FILENO) == 1),
      total_(total_steps),
      first_(first_step),
      plain_every_(plain_every),
      start_(Clock::now()) {}

Progress::~Progress() {
  if (terminal_ && !bar_.empty()) write_terminal("\r\x1b[K" + bar_ + "\n");
}

void Progress::update(const StepMetrics& metrics) {
  const auto now = Clock::now();
  const std::chrono::duration<double> elapsed = now - start_;
  const int64_t done = metrics.step - first_;
  const double eta_s = done > 0
                           ? elapsed.count() / static_cast<double>(done) *
                                 static_cast<double>(std::max<int64_t>(total_ - metrics.step, 0))
                           : -1;
  const bool last = metrics.step >= total_;
  if (!terminal_) {
    if (done == 1 || last || metrics.step % std::max<int64_t>(plain_every_, 1) == 0)
      notice(progress_line(metrics, total_, eta_s));
    return;
  }
  bar_ = progress_bar(metrics, total_, eta_s, terminal_width());
  if (!last && now - drawn_ < kRedraw) return;
  drawn_ = now;
  write_terminal("\r\x1b[K" + bar_);
}

void Progress::note(const std::string& line) {
  if (!terminal_) return notice(line);
  write_terminal("\r\x1b[K" + escape_text(line, 4000) + "\n" + bar_);
}

}  // namespace lft::report
