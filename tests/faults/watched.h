// Runs a program, or a function in a forked child, that is killed if it opens a socket or starts
// a program (seccomp_filter.h), and records every file that it or a child names (ptrace).
// Both must be available: unwatchable() returns what is missing.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "faults/file_calls.h"
#include "faults/seccomp_filter.h"
#include "support/temp_dir.h"
#include "train/tiny_run.h"

namespace lft::test {

struct Watched {
  int code = -1;           // exit code; 128 + n after signal n
  bool forbidden = false;  // it, or a child of it, was killed for a socket or another program
  int forks = 0;
  int left = 0;                 // processes that outlive it; they are killed with it
  std::vector<FileCall> calls;  // in order
  std::string out, err;

  bool names(const std::string& piece) const {  // in a path
    return std::any_of(calls.begin(), calls.end(), [&](const FileCall& call) {
      return call.path.find(piece) != std::string::npos;
    });
  }
};

struct WatchedCommand {
  std::vector<std::string> arguments;    // the program's path first
  std::vector<std::string> environment;  // the whole environment
  std::string folder = "/";              // working directory
  std::function<void()> body = {};       // instead of a program
};

constexpr int kNoTracer = 121, kNoFilter = 122, kNoProgram = 127;

/// In the child: no allocation before `body`.
[[noreturn]] inline void become_watched(const WatchedCommand& command, const char* path,
                                        char** argv, char** envp, sock_fprog filter) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (chdir(command.folder.c_str()) != 0 || ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
    _exit(kNoTracer);
  raise(SIGSTOP);  // until the tracer has set its options
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0)
    _exit(kNoFilter);
  if (command.body) {
    command.body();
    _exit(0);
  }
  syscall(SYS_execve, path, argv, envp);
  _exit(kNoProgram);
}

/// Lets `child` and all its threads and children run until it ends.
inline void trace(pid_t child, Watched& ran) {
  std::set<pid_t> forked, ended;  // an exit can be reported before its start
  int status = 0;
  for (pid_t process; (process = waitpid(-1, &status, __WALL)) > 0;) {
    if (!WIFSTOPPED(status)) {
      ran.forbidden |= WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
      ended.insert(process);
      if (process != child) continue;
      ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    const int event = status >> 16;
    int passed_on = event == 0 ? WSTOPSIG(status) : 0;
    if (passed_on == SIGSTOP) passed_on = 0;  // how a new thread or process begins
    if (event == PTRACE_EVENT_SECCOMP) note_call(process, ran.calls);
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
      unsigned long born = 0;
      ptrace(PTRACE_GETEVENTMSG, process, nullptr, &born);
      forked.insert(static_cast<pid_t>(born));
      ++ran.forks;
    }
    ptrace(PTRACE_CONT, process, nullptr, passed_on);
  }
  for (const pid_t left : forked) {
    if (ended.contains(left)) continue;
    ++ran.left;
    kill(left, SIGKILL);
    while (waitpid(left, &status, __WALL) == left && WIFSTOPPED(status)) continue;
  }
}

inline Watched watch(const WatchedCommand& command) {
  const TempDir scratch;
  // The path of the program, at an address where the program itself has nothing.
  constexpr size_t kPage = 4096;
  void* const place = mmap(reinterpret_cast<void*>(uint64_t{1} << 45), kPage,
                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const path = static_cast<char*>(place);
  if (!command.arguments.empty()) command.arguments.front().copy(path, kPage - 1);
  std::vector<sock_filter> filter = watch_filter(reinterpret_cast<uint64_t>(path));
  std::vector<char*> argv, envp;
  for (const std::string& argument : command.arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : command.environment)
    envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const int in = open("/dev/null", O_RDONLY),
            out = open(scratch.file("out").c_str(), O_CREAT | O_WRONLY, 0644);
  const int err = open(scratch.file("err").c_str(), O_CREAT | O_WRONLY, 0644);

  Watched ran;
  const pid_t child = fork();
  if (child == 0) {
    for (int number = 0; number < 3; ++number)
      dup2(std::initializer_list<int>{in, out, err}.begin()[number], number);
    become_watched(command, path, argv.data(), envp.data(),
                   {static_cast<unsigned short>(filter.size()), filter.data()});
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSTOPPED(status)) {
    constexpr long kSeen = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                           PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    ptrace(PTRACE_SETOPTIONS, child, nullptr, kSeen);
    ptrace(PTRACE_CONT, child, nullptr, nullptr);
    trace(child, ran);
  } else {
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  for (const int descriptor : {in, out, err}) close(descriptor);
  munmap(place, kPage);
  ran.out = slurp(scratch.file("out"));
  ran.err = slurp(scratch.file("err"));
  return ran;
}

/// The reason why nothing can be watched here; "" if it can.
inline std::string unwatchable() {
  if (kAuditArch == 0) return "the seccomp filter is not written for this processor";
  const Watched ran = watch(
      {.arguments = {}, .environment = {}, .body = [] { close(open("/dev/null", O_RDONLY)); }});
  if (ran.code == kNoTracer) return "this system does not let a process trace its child (ptrace)";
  if (ran.code == kNoFilter) return "this system does not let a process filter its calls (seccomp)";
  if (ran.code == 0 && ran.calls.size() == 1 && ran.calls[0].path == "/dev/null") return "";
  return "this system does not tell the calls of a traced process (PTRACE_GET_SYSCALL_INFO, Linux "
         "5.3)";
}

}  // namespace lft::test
