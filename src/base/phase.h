// What the program is doing. While it lasts, a thread shows it: on a terminal on the last line,
// otherwise as a plain line whenever nothing has been printed for almost five seconds. The same
// thread answers a signal at once.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace lft {

/// The answer to a signal: "stopping after this step; press Ctrl-C again to quit now". A signal
/// other than SIGINT does not come from a keyboard, so that its answer names no key.
std::string stopping_line(const std::string& stops, int signal);

/// Shows a text from construction to destruction. Several may exist: the newest one is shown. The
/// thread exists as long as any of them. Answers one signal with one line.
class Shown {
 public:
  /// The text for a terminal of `width` columns (0: a plain line); empty: nothing to show yet.
  using Text = std::function<std::string(int64_t width)>;
  /// `text` is called by another thread at any time. `stops` completes the answer to a signal:
  /// "after this step".
  Shown(Text text, std::string stops);
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  ~Shown();

 private:
  friend class ShownThread;
  const Text text_;
  const std::string stops_;
};

struct PhaseState {
  std::string what;             // "evaluation of step 20"
  int64_t done = 0, total = 0;  // total 0: without a count
  int64_t tokens = 0;           // of the answers in progress
  double seconds = 0;
};
/// "evaluation of step 20 3/8, 17 tokens 0:41<1:08": the time that has passed and, from the first
/// counted part on, the estimated rest.
std::string phase_line(const PhaseState& state);

/// A phase with its count and its time.
class Phase {
 public:
  /// `stops`: as in Shown; empty: "after the <what>".
  explicit Phase(std::string what, int64_t total = 0, const std::string& stops = "");
  /// From any thread. Finished parts, and tokens of the answers in progress.
  void done(int64_t count) { done_ = count; }
  void add(int64_t count = 1) { done_ += count; }
  void tokens(int64_t count) { tokens_ = count; }

 private:
  std::string text(int64_t width) const;

  const std::string what_;
  const int64_t total_;
  std::atomic<int64_t> done_{0}, tokens_{0};
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const Shown shown_;  // last: its thread reads the others
};

}  // namespace lft
