// A child process that a test can signal and kill: the built lft, with its output kept.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace lft::test {

class Child {
 public:
  /// Starts `arguments[0]` with stdout and stderr in files; `environment` is added ("NAME=value").
  Child(const std::vector<std::string>& arguments, const std::string& out, const std::string& err,
        const std::vector<std::string>& environment = {}) {
    pid_ = fork();
    if (pid_ != 0) return;
    dup2(open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644), 1);
    dup2(open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644), 2);
    for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Child() {
    if (running()) signal(SIGKILL);
    wait();
  }
  Child(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) { kill(pid_, number); }
  bool running() {
    if (code_ < 0 && waitpid(pid_, &status_, WNOHANG) == pid_) decode();
    return code_ < 0;
  }
  /// Exit code; 128 + n after signal n.
  int wait() {
    if (code_ < 0 && waitpid(pid_, &status_, 0) == pid_) decode();
    return code_;
  }
  /// Waits until `ready()` or the end of the child; true for the former.
  template <class Ready>
  bool wait_until(const Ready& ready) {
    while (running()) {
      if (ready()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  void decode() { code_ = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  pid_t pid_ = -1;
  int status_ = 0, code_ = -1;
};

}  // namespace lft::test
