// Runs a command, or a function in a forked child, under the fault shim (modes are described in
// shim.cpp), and keeps its output.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

#include "src/base/errors.h"
#include "support/slurp.h"
#include "support/temp_dir.h"

namespace lft::test {

struct Fault {
  std::string root;            // faults occur below this folder: absolute, without symlinks
  std::string mode = "count";  // count, kill, power, powerdata, enospc, eio, short, eintr
  long at = 0;                 // index of the call, from 1
};

struct Shimmed {
  int code = -1;  // exit code; 128 + n after signal n
  std::string out, err;
  long calls = 0;  // counted by the shim

  int errors() const {  // error blocks on stderr
    int found = 0;
    for (size_t at = err.find("error:"); at != std::string::npos; at = err.find("error:", at + 1))
      ++found;
    return found;
  }
};

inline Shimmed collect(int status, const TempDir& scratch) {
  Shimmed ran;
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.out = slurp(scratch.file("out"));
  ran.err = slurp(scratch.file("err"));
  ran.calls = atol(slurp(scratch.file("count")).c_str());
  return ran;
}

/// `command` in shell syntax. The shell itself is not shimmed.
inline Shimmed run_shimmed(const std::string& command, const Fault& fault) {
  const TempDir scratch;
  const std::string line =
      "env LD_PRELOAD=" LFT_BINARY_DIR "/tests/liblft_fault_shim.so LFT_SHIM_ROOT=" + fault.root +
      " LFT_SHIM_MODE=" + fault.mode + " LFT_SHIM_AT=" + std::to_string(fault.at) +
      " LFT_SHIM_COUNT=" + scratch.file("count") +
      " OMP_NUM_THREADS=1 ASAN_OPTIONS=verify_asan_link_order=0 " + command + " >" +
      scratch.file("out") + " 2>" + scratch.file("err");
  int status = system(("exec " + line).c_str());
  return collect(status, scratch);
}

/// Runs `body` in a child of this process, which must be linked with the shim; an lft::Error ends
/// it as it would end lft. Call it before this process has other threads.
inline Shimmed fork_shimmed(const Fault& fault, const std::function<void()>& body) {
  const TempDir scratch;
  const pid_t child = fork();
  if (child == 0) {
    setenv("LFT_SHIM_COUNT", scratch.file("count").c_str(), 1);
    setenv("LFT_SHIM_ROOT", fault.root.c_str(), 1);
    setenv("LFT_SHIM_MODE", fault.mode.c_str(), 1);
    setenv("LFT_SHIM_AT", std::to_string(fault.at).c_str(), 1);
    if (freopen(scratch.file("err").c_str(), "w", stderr) == nullptr) _exit(99);
    int code = 0;
    try {
      body();
    } catch (const Error& error) {
      fputs(format_error(error).c_str(), stderr);
      code = static_cast<int>(error.kind());
    } catch (...) {
      code = 1;
    }
    fflush(stderr);
    _exit(code);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return collect(status, scratch);
}

}  // namespace lft::test
