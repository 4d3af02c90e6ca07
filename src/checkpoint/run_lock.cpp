#include "src/checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/checkpoint/steps.h"
#include "src/io/file_handle.h"
#include "src/io/files.h"

namespace lft::checkpoint {
namespace {

std::string owner_text() {
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  return "process " + std::to_string(getpid()) + " on host " + host + ", since " +
         utc_now("%Y-%m-%d %H:%M:%S UTC");
}

std::string lock_path(const std::string& output_dir) { return rooted_dir(output_dir) + "/.lock"; }

std::string owner_in(const std::string& path) {
  constexpr uint64_t kMaxOwner = 1024;
  try {
    return io::read_file(path, kMaxOwner);
  } catch (const Error&) {
    return "a process that has not written its name";
  }
}

[[noreturn]] void throw_taken(const std::string& path) {
  refuse(ErrorKind::kUsage, "another run is at work in this output_dir", path, owner_in(path), {},
         "wait for it to end, or give another output_dir");
}

bool has_no_locks(int code) {
  return code == ENOLCK || code == EOPNOTSUPP || code == ENOSYS || code == EINVAL;
}

}  // namespace

std::optional<std::string> lock_owner(const std::string& output_dir) {
  const std::string path = lock_path(output_dir);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const bool taken = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return taken ? std::optional(owner_in(path)) : std::nullopt;
}

void refuse_locked(const std::string& output_dir) {
  if (lock_owner(output_dir)) throw_taken(lock_path(output_dir));
}

RunLock::RunLock(const std::string& output_dir) {
  const std::string root = rooted_dir(output_dir), path = lock_path(output_dir);
  if (access(root.c_str(), W_OK | X_OK) != 0) io::throw_io_error("write in", root, errno);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) io::throw_io_error("lock", path, errno);
  try {
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      if (code == EWOULDBLOCK) throw_taken(path);
      if (!has_no_locks(code)) io::throw_io_error("lock", path, code);
      warning("cannot lock " + path + " (" + strerror(code) +
              "): make sure that no other run uses this output_dir");
    }
    const std::string owner = owner_text();
    io::FileHandle file = io::FileHandle::create(path, owner.size());
    file.write(owner.data(), owner.size());
    file.close();
  } catch (...) {
    close(fd_);
    throw;
  }
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace lft::checkpoint
