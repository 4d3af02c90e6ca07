#include "src/dist/launch.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/signals.h"

extern char** environ;

namespace lft::dist {
namespace {

constexpr useconds_t kLookEvery = 10'000;  // microseconds
constexpr int64_t kLastLooks = 1000;       // granted to a process that outlives rank 0

/// A free port of the loopback.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!bound)
    refuse(ErrorKind::kResource, "no port is free on this machine", {}, std::strerror(errno));
  close(fd);
  return ntohs(address.sin_port);
}

bool tells_a_place(const std::string& variable) {
  for (const char* name :
       {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT=",
        "TORCHELASTIC_", "SLURM_PROCID=", "OMPI_COMM_WORLD_"}) {
    if (variable.starts_with(name)) return true;
  }
  return false;
}

/// The environment of this process, with the child's rank variables.
std::vector<std::string> environment_of(int64_t rank, int64_t count, int port) {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    if (!tells_a_place(*each)) variables.emplace_back(*each);
  }
  const std::string number = std::to_string(rank), all = std::to_string(count);
  for (const std::string& variable :
       {"RANK=" + number, "LOCAL_RANK=" + number, "WORLD_SIZE=" + all, "LOCAL_WORLD_SIZE=" + all,
        std::string("MASTER_ADDR=127.0.0.1"), "MASTER_PORT=" + std::to_string(port)})
    variables.push_back(variable);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int64_t threads = std::thread::hardware_concurrency() / count;
    variables.push_back("OMP_NUM_THREADS=" + std::to_string(std::max<int64_t>(1, threads)));
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// A separate process group: the terminal's Ctrl-C reaches only this process, which forwards it.
/// Signals reach the process once its handlers are installed.
pid_t start(const std::vector<std::string>& arguments, std::vector<std::string> environment) {
  std::vector<std::string> words = {"lft"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = pointers(words), envp = pointers(environment);
  const BlockedSignals blocked;
  const pid_t parent = getpid(), pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent ended before the request
  execve("/proc/self/exe", argv.data(), envp.data());
  _exit(127);
}

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] == 'T';
}

struct Process {
  int64_t rank = 0;
  pid_t pid = -1;
  int status = 0;
  bool running = true;
  bool failed() const { return !running && status != 0; }
};

class Processes {
 public:
  explicit Processes(std::vector<Process> processes) : processes_(std::move(processes)) {}

  int wait() {
    int64_t after_first = 0;
    int passed_on = 0;
    while (any(&Process::running)) {
      collect();
      if (const int signal = requested_signal(); signal != passed_on) {
        send(passed_on = signal);
      }
      if (any_failed() && all_that_run_are_stopped()) send(SIGKILL);
      if (processes_.front().failed() && ++after_first == kLastLooks) send(SIGKILL);
      usleep(kLookEvery);
    }
    return code();
  }

  void send(int signal) {
    for (const Process& process : processes_) {
      if (process.running) kill(process.pid, signal);
    }
  }

 private:
  bool any(bool Process::*what) const { return std::ranges::any_of(processes_, what); }
  bool any_failed() const { return std::ranges::any_of(processes_, &Process::failed); }
  bool all_that_run_are_stopped() const {
    return std::ranges::all_of(processes_, [](const Process& process) {
      return !process.running || is_stopped(process.pid);
    });
  }

  void collect() {
    for (Process& process : processes_) {
      if (!process.running || waitpid(process.pid, &process.status, WNOHANG) != process.pid)
        continue;
      process.running = false;
      if (WIFSIGNALED(process.status)) {
        notice("rank " + std::to_string(process.rank) + " (process " + std::to_string(process.pid) +
               ") was ended by signal " + std::to_string(WTERMSIG(process.status)));
      }
    }
  }

  int code() const {
    for (const Process& process : processes_) {
      if (WIFEXITED(process.status) && WEXITSTATUS(process.status) != 0)
        return WEXITSTATUS(process.status);
    }
    for (const Process& process : processes_) {
      if (WIFSIGNALED(process.status)) return 128 + WTERMSIG(process.status);
    }
    return 0;
  }

  std::vector<Process> processes_;
};

}  // namespace

int launch(int64_t count, const std::vector<std::string>& arguments) {
  const int port = free_port();
  std::vector<Process> processes;
  for (int64_t rank = 0; rank < count; ++rank) {
    const pid_t pid = start(arguments, environment_of(rank, count, port));
    if (pid < 0) {
      const std::string why = std::strerror(errno);
      Processes(processes).send(SIGKILL);
      refuse(ErrorKind::kResource, "a process of the run cannot be started",
             "rank " + std::to_string(rank), why, {}, "start fewer processes");
    }
    processes.push_back({.rank = rank, .pid = pid});
  }
  return Processes(std::move(processes)).wait();
}

}  // namespace lft::dist
