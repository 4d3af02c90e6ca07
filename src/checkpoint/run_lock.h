// One run at a time in an output directory: a lock that the kernel releases whenever its owner
// dies.
#pragma once
#include <optional>
#include <string>
#include <utility>

namespace lft::checkpoint {

/// The process, host and time of the run that has the lock of `output_dir`; nothing if none has it.
/// Writes nothing.
std::optional<std::string> lock_owner(const std::string& output_dir);

/// kUsage as in RunLock if another process has the lock of `output_dir`; writes nothing.
void refuse_locked(const std::string& output_dir);

class RunLock {
 public:
  /// Locks <output_dir>/.lock, which contains its owner; the directory must exist. Create it after
  /// the last fork: a child that outlives the run would keep the lock. kUsage with process, host
  /// and time of the run that has it; kResource if the directory is missing or not writable. A file
  /// system without locks is a warning.
  explicit RunLock(const std::string& output_dir);
  RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RunLock& operator=(RunLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RunLock();

 private:
  int fd_ = -1;
};

}  // namespace lft::checkpoint
