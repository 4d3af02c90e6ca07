// Signals set a flag that loops poll. The poller decides what to save and how to exit.
#pragma once
#include <signal.h>

#include <exception>

namespace lft {

/// SIGINT, SIGTERM and SIGUSR1 set the flag; a second signal calls _exit(128 + n). SIGPIPE and
/// SIGXFSZ are ignored: the write fails. Call it once, early in main().
void install_signal_handlers();
/// Blocks those three signals for its lifetime. A process that starts meanwhile receives them after
/// install_signal_handlers().
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};
/// The first signal that was received (SIGINT, SIGTERM or SIGUSR1), or 0.
int requested_signal();
/// Thrown after a signal if there is nothing to save: the program exits with stop_exit_code().
struct Stopped : std::exception {
  explicit Stopped(int signal = requested_signal()) : signal(signal) {}
  int signal;
  const char* what() const noexcept override { return "stopped by a signal"; }
};
/// Whether the signal is SIGINT; if so, the flag is reset to 0.
bool take_interrupt();
/// Exit code of a run that has saved and stopped after this signal: 130 for SIGINT, otherwise 75
/// (preempted, requeue).
int stop_exit_code(int signal);

}  // namespace lft
