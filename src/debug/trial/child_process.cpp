#include "src/debug/trial/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/io/files.h"

namespace lft::debug {
namespace {

constexpr int kStopped = 75, kInterrupted = 130;

[[noreturn]] void cannot_start(const std::string& what, const std::string& where) {
  const int code = errno;
  const bool crowded = code == EAGAIN || code == ENOMEM;
  refuse(ErrorKind::kResource, what, where, std::strerror(code), {},
         crowded ? "free memory, or raise the limit on processes (ulimit -u, a container's)"
                 : "choose a folder on a disk with room, where this user may write: "
                   "output_dir, TMPDIR");
}

/// Runs in the child between fork and exec: must not allocate.
[[noreturn]] void become(char* const* argv, int out, int err) {
  setpgid(0, 0);  // Ctrl-C is forwarded by the parent: a second signal would kill the child
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execv("/proc/self/exe", argv);
  _exit(127);
}

/// A signal does not interrupt waitpid here, so it is polled.
int wait_for(pid_t pid) {
  constexpr useconds_t kPause = 5000;  // microseconds
  int status = 0;
  for (bool passed_on = false;; usleep(kPause)) {
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) return status;
    if (done < 0 && errno != EINTR) cannot_start("cannot wait for a process", std::to_string(pid));
    if (const int signal = requested_signal(); signal != 0 && !passed_on) {
      kill(pid, signal);
      passed_on = true;
    }
  }
}

/// Signals reach the process once its handlers are installed.
pid_t start(const std::vector<std::string>& arguments, int out, int err) {
  std::vector<char*> argv = {const_cast<char*>("lft")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const BlockedSignals blocked;
  const pid_t pid = fork();
  if (pid == 0) become(argv.data(), out, err);
  return pid;
}

int wait_for_started(pid_t pid, const std::vector<std::string>& arguments) {
  if (pid < 0) cannot_start("cannot start a process", arguments.front());
  return wait_for(pid);
}

/// Parses the error block of a process: all parts but the last stay together, the last is the
/// advice.
ErrorInfo error_of(const std::string& text) {
  const std::string mark = "error: ", last = "\n  next: ";
  const size_t at = text.find(mark);
  ErrorInfo info;
  if (at == std::string::npos) {
    info.what = "it left no message\n" + text;
    return info;
  }
  const size_t begin = at + mark.size(), next = std::min(text.find(last, begin), text.size());
  const size_t advice = std::min(next + last.size(), text.size());
  info.what = text.substr(begin, next - begin);
  info.next = text.substr(advice);
  return info;
}

[[noreturn]] void throw_failure(int status, const std::string& log) {
  const std::string text = io::read_file(log + ".err");
  const std::string name = log.substr(log.rfind('/') + 1);
  if (WIFSIGNALED(status)) {
    const bool killed = WTERMSIG(status) == SIGKILL;
    refuse(killed ? ErrorKind::kResource : ErrorKind::kInternal,
           "a separate process (" + name + ") was ended by signal " +
               std::to_string(WTERMSIG(status)) + (killed ? ": memory ran out?" : ""),
           {}, text, {}, killed ? "free memory, or lower train.batch_size" : "");
  }
  const int code = WEXITSTATUS(status);
  const bool known = code >= static_cast<int>(ErrorKind::kInternal) &&
                     code <= static_cast<int>(ErrorKind::kResource);
  ErrorInfo info = error_of(text);
  info.where = "in a separate process (" + name + ")";
  throw Error(known ? static_cast<ErrorKind>(code) : ErrorKind::kInternal, std::move(info));
}

}  // namespace

ScratchDir::ScratchDir(const std::string& prefix) : path_(prefix + "XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr)
    cannot_start("cannot make a temporary folder", prefix + "*");
}

ScratchDir::~ScratchDir() {
  try {
    io::remove_tree(path_);
  } catch (const Error& error) {
    warning("left behind: " + path_ + " (" + error.what() + ")");
  }
}

int run_self(const std::vector<std::string>& arguments, const std::string& log) {
  const int out = open((log + ".out").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  const int err = open((log + ".err").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (out < 0 || err < 0) cannot_start("cannot write", log);
  const pid_t pid = start(arguments, out, err);
  const int fork_error = errno;
  close(out);
  close(err);
  errno = fork_error;
  const int status = wait_for_started(pid, arguments);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  if (WIFEXITED(status) && (WEXITSTATUS(status) == kStopped || WEXITSTATUS(status) == kInterrupted))
    return WEXITSTATUS(status);
  throw_failure(status, log);
}

int run_self_shown(const std::vector<std::string>& arguments) {
  const int status = wait_for_started(start(arguments, STDOUT_FILENO, STDERR_FILENO), arguments);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lft::debug
