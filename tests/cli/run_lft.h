// Runs the built lft as a user would and keeps its output.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "support/temp_dir.h"
#include "train/tiny_run.h"

namespace lft::test {

struct Ran {
  int code = -1;  // exit code; 128 + n after signal n
  std::string out, err;

  /// Number of occurrences of `piece` on stderr.
  int count(const std::string& piece) const {
    int found = 0;
    for (size_t at = err.find(piece); at != std::string::npos; at = err.find(piece, at + 1))
      ++found;
    return found;
  }
};

/// `arguments` in shell syntax; `folder`: the working directory.
inline Ran run_lft(const std::string& arguments, const std::string& folder = ".") {
  const TempDir scratch;
  const std::string command = "cd " + folder + " && OMP_NUM_THREADS=1 " LFT_BINARY_DIR "/lft " +
                              arguments + " 2>" + scratch.file("err");
  Ran ran;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> buffer;
  for (size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    ran.out.append(buffer.data(), got);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.err = slurp(scratch.file("err"));
  return ran;
}

/// Replaces this process, a forked child, by lft with these arguments.
[[noreturn]] inline void exec_lft(const std::vector<std::string>& arguments) {
  setenv("OMP_NUM_THREADS", "1", 1);
  std::string program = LFT_BINARY_DIR "/lft";
  std::vector<char*> argv = {program.data()};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace lft::test
