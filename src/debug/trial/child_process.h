// Parts of a command that run in a process of their own: this program once more. And the folder in
// which they leave their files.
#pragma once
#include <string>
#include <vector>

namespace lft::debug {

/// A new folder, removed with all it holds.
class ScratchDir {
 public:
  /// `prefix` is completed with random letters. kResource where it cannot be made.
  explicit ScratchDir(const std::string& prefix);
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Starts /proc/self/exe with `arguments` and waits; what it prints goes to <log>.out and
/// <log>.err. Signals that ask this process to stop are passed on. 0, or the exit code of a process
/// that was stopped (75, 130). Its own error is thrown again, of its kind, with `log` named.
int run_self(const std::vector<std::string>& arguments, const std::string& log);

}  // namespace lft::debug
