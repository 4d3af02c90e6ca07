#include "src/base/phase.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/bar.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/base/terminal.h"

namespace lft {

/// The thread and what it shows.
class ShownThread {
 public:
  /// Never destroyed: the program may exit while something is shown.
  static ShownThread& instance() {
    static auto* const one = new ShownThread;
    return *one;
  }

  void add(const Shown* shown) {
    const std::lock_guard lock(mutex_);
    shown_.push_back(shown);
    if (shown_.size() == 1) start();
  }

  void remove(const Shown* shown) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      std::erase(shown_, shown);
      if (!shown_.empty()) return;
      show_status("");
      ended.swap(thread_);
      ends_.notify_all();
    }
    if (ended.joinable()) ended.join();
  }

 private:
  static constexpr auto kTick = std::chrono::milliseconds(100);
  static constexpr double kQuiet = 4.5;  // seconds without output until a plain line

  /// Without memory for a thread nothing is shown. Signals are left to the other threads, whose
  /// system calls they interrupt.
  void start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this, number = ++number_] { run(number); });
    } catch (const std::system_error&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  /// Ends when nothing is left to show, even if another thread has been started by then.
  void run(int64_t number) {
    std::unique_lock lock(mutex_);
    while (number == number_ && !shown_.empty()) {
      ends_.wait_for(lock, kTick);
      if (number != number_ || shown_.empty()) return;
      answer_signal();
      draw();
    }
  }

  void answer_signal() {
    const int signal = requested_signal();
    if (signal != 0 && answered_ == 0) notice(stopping_line(shown_.back()->stops_, signal));
    answered_ = signal;
  }

  void draw() const {
    const bool terminal = is_terminal(STDERR_FILENO);
    if (!terminal && seconds_since_output() < kQuiet) return;
    const std::string text = shown_.back()->text_(terminal ? terminal_width(STDERR_FILENO) : 0);
    if (text.empty()) return;
    if (terminal) {
      show_status(text);
    } else {
      notice(text);
    }
  }

  std::mutex mutex_;
  std::condition_variable ends_;
  std::thread thread_;
  std::vector<const Shown*> shown_;
  int64_t number_ = 0;  // of the thread
  int answered_ = 0;    // the signal that has been answered
};

std::string stopping_line(const std::string& stops, int signal) {
  return "stopping " + stops +
         (signal == SIGINT ? "; press Ctrl-C again to quit now" : "; a second signal quits now");
}

Shown::Shown(Text text, std::string stops) : text_(std::move(text)), stops_(std::move(stops)) {
  ShownThread::instance().add(this);
}

Shown::~Shown() { ShownThread::instance().remove(this); }

std::string phase_line(const PhaseState& state) {
  std::string line = state.what;
  if (state.total > 0) line += " " + std::to_string(state.done) + "/" + std::to_string(state.total);
  if (state.tokens > 0)
    line += ", " + std::to_string(state.tokens) + (state.tokens == 1 ? " token" : " tokens");
  line += " " + duration_text(state.seconds);
  if (state.done > 0 && state.total > 0) {
    line +=
        "<" + duration_text(state.seconds / static_cast<double>(state.done) *
                            static_cast<double>(std::max<int64_t>(0, state.total - state.done)));
  }
  return line;
}

Phase::Phase(std::string what, int64_t total, const std::string& stops)
    : what_(std::move(what)),
      total_(total),
      shown_([this](int64_t width) { return text(width); },
             stops.empty() ? "after the " + what_ : stops) {}

std::string Phase::text(int64_t width) const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  const int64_t done = done_;
  std::string line = phase_line({.what = what_,
                                 .done = done,
                                 .total = total_,
                                 .tokens = tokens_,
                                 .seconds = seconds.count()});
  if (width == 0) return line;
  if (total_ > 0) return with_bar(line, done, total_, width);
  return line.substr(0, static_cast<size_t>(std::max<int64_t>(width - 1, 0)));
}

}  // namespace lft
