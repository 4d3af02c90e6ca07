// Parts of a command that run in a separate process of this program, and the directory for their
// files.
#pragma once
#include <string>
#include <vector>

namespace lft::debug {

/// A new directory that is removed with its content.
class ScratchDir {
 public:
  /// `prefix` is completed with random letters. kResource if it cannot be created.
  explicit ScratchDir(const std::string& prefix);
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Starts /proc/self/exe with `arguments` and waits; its output goes to <log>.out and <log>.err.
/// Stop signals are forwarded. Returns 0, or the exit code of a stopped process (75, 130). Its
/// error is rethrown with the same kind, with `log` in the message.
int run_self(const std::vector<std::string>& arguments, const std::string& log);

/// The same with the output of this process. Returns its exit code, or 128 + n if signal n ended
/// it.
int run_self_shown(const std::vector<std::string>& arguments);

}  // namespace lft::debug
