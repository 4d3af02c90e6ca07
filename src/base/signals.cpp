#include "src/base/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "src/base/terminal.h"

namespace lft {
namespace {

// A signal handler can only access globals.
std::atomic<int> first_signal{0};
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGUSR1};
bool on_terminal = false;  // set before the handlers are installed
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) return;
  // A progress line may be on the last line, which the shell continues.
  if (on_terminal && write(STDERR_FILENO, "\n", 1) < 0) _exit(128 + signal);
  _exit(128 + signal);
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStopSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void install_signal_handlers() {
  on_terminal = is_terminal(STDERR_FILENO);
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) sigaction(signal, &action, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaction(signal, &ignore, nullptr);
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

BlockedSignals::BlockedSignals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int requested_signal() { return first_signal.load(); }

bool take_interrupt() {
  int interrupt = SIGINT;
  return first_signal.compare_exchange_strong(interrupt, 0);
}

int stop_exit_code(int signal) { return signal == SIGINT ? 130 : 75; }

}  // namespace lft
