// Runs the built lft as a user would and keeps its output.
#pragma once
#include <stdio.h>
#include <sys/wait.h>

#include <array>
#include <string>

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

}  // namespace lft::test
