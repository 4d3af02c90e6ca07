// Signals as a flag that loops poll. The handlers do nothing else; what to save and how to leave is
// the poller's.
#pragma once
#include <exception>

namespace lft {

/// SIGINT, SIGTERM and SIGUSR1 set the flag; a second one leaves at once with _exit(128 + n).
/// SIGPIPE is ignored. Call once, early in main.
void install_signal_handlers();
/// The first signal that came (SIGINT, SIGTERM, SIGUSR1), 0 while none has.
int requested_signal();
/// A signal came while there was nothing to save: the program ends with stop_exit_code().
struct Stopped : std::exception {
  const char* what() const noexcept override { return "stopped by a signal"; }
};
/// Whether that is SIGINT; then it is answered, and the flag is 0 again.
bool take_interrupt();
/// Exit code of a run that saved and stopped for this signal: 130 for SIGINT, else 75 (preempted,
/// requeue).
int stop_exit_code(int signal);

}  // namespace lft
