// Preloaded into a program (LD_PRELOAD) or linked with it, this library counts the calls that
// change files below a folder, and makes the k-th of them fail, or kills the process there.
// Plain libc, no lft. A forked child counts from 0, using the environment at its
// first call.
//
// LFT_SHIM_ROOT   the folder, as an absolute path without symlinks; if unset, the shim is inactive
// LFT_SHIM_MODE   count | kill | power | powerdata | enospc | eio | short | eintr
// LFT_SHIM_AT     k, from 1
// LFT_SHIM_COUNT  a file that receives the number of calls so far
// LFT_SHIM_FREE   free bytes reported by statvfs
//
// Counted: write, pwrite, writev, fsync, fdatasync, rename, mkdir, unlink, unlinkat, rmdir. Below
// the folder fsync is only counted: data written by a dead process stays, and the power cut is
// simulated by the shim. kill: SIGKILL instead of the call; a write transfers its first half.
// power: SIGKILL after the disk is put in a state that a power cut may leave: files lose what was
// never fsynced, and names
//   created or renamed in a folder not fsynced since are reverted. Deletions stay: they may
//   reach the disk before anything else.
// powerdata: the same, but every name stays: metadata may reach the disk before data.
// enospc: the call fails, and so does every later write and mkdir, since a full disk stays full.
// Deletions work. eio: the call fails once. short: a write transfers half. eintr: a write or fsync
// is interrupted once.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static const auto real_##name = real<decltype(&name)>(#name)

enum class Call { kWrite, kSync, kRename, kMkdir, kUnlink, kRmdir };

/// A new name that is not yet durable.
struct NameChange {
  std::string path, from, backup;  // from: source of a rename; backup: the previous file at `path`
  bool durable = false;
};

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || path.rfind(folder + "/", 0) == 0;
}

void move_prefix(std::string* path, const std::string& from, const std::string& to) {
  if (!path->empty() && is_below(*path, from)) *path = to + path->substr(from.size());
}

std::string path_of(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path);
  return length <= 0 ? "" : std::string(path, static_cast<size_t>(length));
}

std::string absolute(int at, const char* path) {
  if (path[0] == '/') return path;
  return (at == AT_FDCWD ? std::filesystem::current_path().string() : path_of(at)) + "/" + path;
}

/// The settings of this process, and the contents of its disk after a power cut.
class Shim {
 public:
  Shim() {
    const auto variable = [](const char* name) {
      const char* value = getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    root_ = variable("LFT_SHIM_ROOT");
    mode_ = variable("LFT_SHIM_MODE");
    at_ = atol(variable("LFT_SHIM_AT").c_str());
    open_counter(variable("LFT_SHIM_COUNT"));
  }

  bool covers(const std::string& path) const { return !root_.empty() && is_below(path, root_); }
  bool models_power() const { return mode_ == "power" || mode_ == "powerdata"; }

  /// Counts the call. 0: it proceeds; otherwise the errno with which it fails; kHalf: a write
  /// transfers half; kHalfAndDie.
  static constexpr int kHalf = -1, kHalfAndDie = -2;
  int enter(Call call) {
    show(++count_);
    const bool now = count_ == at_;
    if (mode_ == "enospc") return fails_for_space(call, now) ? ENOSPC : 0;
    if (!now) return 0;
    if (mode_ == "kill" && call == Call::kWrite) return kHalfAndDie;
    if (mode_ == "kill") die();
    if (models_power()) {
      cut_power();
      die();
    }
    if (mode_ == "eio") return EIO;
    if (mode_ == "short" && call == Call::kWrite) return kHalf;
    if (mode_ == "eintr" && (call == Call::kWrite || call == Call::kSync)) return EINTR;
    return 0;
  }

  void created(const std::string& path) { changes_.push_back({path, "", "", false}); }
  void file_opened(const std::string& path, bool emptied, uint64_t bytes) {
    if (emptied) durable_[path] = 0;
    durable_.emplace(path, bytes);
  }
  void synced(const std::string& path, int fd) {
    struct stat status {};
    if (fstat(fd, &status) != 0) return;
    if (S_ISREG(status.st_mode)) durable_[path] = static_cast<uint64_t>(status.st_size);
    for (NameChange& change : changes_)
      change.durable =
          change.durable || (S_ISDIR(status.st_mode) && parent_of(change.path) == path);
  }
  /// Before a rename over `to`: a second name for the file that it replaces.
  std::string keep_replaced(const std::string& to) {
    struct stat status {};
    if (!models_power() || lstat(to.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
    const std::string backup =
        root_ + ".replaced-" + std::to_string(getpid()) + "-" + std::to_string(count_);
    return link(to.c_str(), backup.c_str()) == 0 ? backup : "";
  }
  void renamed(const std::string& from, const std::string& to, const std::string& backup) {
    durable_.erase(to);
    std::map<std::string, uint64_t> moved;
    for (const auto& [path, bytes] : durable_) {
      std::string name = path;
      move_prefix(&name, from, to);
      moved[name] = bytes;
    }
    durable_ = std::move(moved);
    for (NameChange& change : changes_) move_prefix(&change.path, from, to);
    changes_.push_back({to, from, backup, false});
  }
  void removed(const std::string& path) {
    durable_.erase(path);
    std::erase_if(changes_, [&](const NameChange& change) { return change.path == path; });
  }
  [[noreturn]] static void die() {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }

  std::mutex mutex;

 private:
  void open_counter(const std::string& path) {
    constexpr size_t kDigits = 21;
    if (path.empty()) return;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, kDigits) != 0) return;
    void* memory = mmap(nullptr, kDigits, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) counter_ = static_cast<char*>(memory);
    close(fd);
  }
  void show(long count) {
    if (counter_ != nullptr) snprintf(counter_, 21, "%020ld", count);
  }

  bool fails_for_space(Call call, bool now) {
    if (call == Call::kUnlink || call == Call::kRmdir) return false;
    full_ = full_ || (now && (call == Call::kWrite || call == Call::kMkdir));
    return now || (full_ && (call == Call::kWrite || call == Call::kMkdir));
  }

  void cut_power() {
    for (const auto& [path, bytes] : durable_) {
      struct stat status {};
      if (lstat(path.c_str(), &status) == 0 && static_cast<uint64_t>(status.st_size) > bytes)
        std::filesystem::resize_file(path, bytes, ignored_);
    }
    if (mode_ == "powerdata") return;
    for (size_t i = changes_.size(); i-- > 0;) {
      const NameChange change = changes_[i];
      if (change.durable) continue;
      if (change.from.empty()) {
        std::filesystem::remove_all(change.path, ignored_);
        continue;
      }
      std::filesystem::rename(change.path, change.from, ignored_);
      for (size_t earlier = 0; earlier < i; ++earlier)
        move_prefix(&changes_[earlier].path, change.path, change.from);
      if (!change.backup.empty()) std::filesystem::rename(change.backup, change.path, ignored_);
    }
  }

  std::string root_, mode_;
  long at_ = 0, count_ = 0;
  bool full_ = false;
  char* counter_ = nullptr;
  std::error_code ignored_;
  std::map<std::string, uint64_t>
      durable_;  // per file opened for writing, the bytes that remain after a power cut
  std::vector<NameChange> changes_;  // in order
};

Shim& shim_of_this_process() {
  static std::mutex mutex;
  static Shim* shim = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) shim = new Shim;
  owner = getpid();
  return *shim;
}

/// Ignores the shim's own calls.
thread_local bool inside = false;

class Guard {
 public:
  explicit Guard(const std::string& path) {
    if (inside) return;
    inside = outermost_ = true;
    Shim& shim = shim_of_this_process();
    if (!shim.covers(path)) return;
    lock_ = std::unique_lock(shim.mutex);
    shim_ = &shim;
  }
  ~Guard() {
    if (outermost_) inside = false;
  }
  /// Null if the shim ignores the call.
  Shim* shim() const { return shim_; }

 private:
  bool outermost_ = false;
  Shim* shim_ = nullptr;
  std::unique_lock<std::mutex> lock_;
};

int fail(int code) {
  errno = code;
  return -1;
}

template <class Open>
int open_tracked(const std::string& path, int flags, Open open_it) {
  const Guard guard(path);
  Shim* shim = guard.shim();
  if (shim == nullptr || !shim->models_power() || (flags & O_ACCMODE) == O_RDONLY) return open_it();
  struct stat before {};
  const bool fresh = lstat(path.c_str(), &before) != 0;
  const int fd = open_it();
  if (fd < 0) return fd;
  if (fresh) shim->created(path);
  shim->file_opened(path, fresh || (flags & O_TRUNC) != 0,
                    fresh ? 0 : static_cast<uint64_t>(before.st_size));
  return fd;
}

/// `transfer(bytes)`: the real call for the first bytes of the data.
template <class Transfer>
ssize_t write_tracked(int fd, size_t bytes, Transfer transfer) {
  const Guard guard(path_of(fd));
  const int code = guard.shim() == nullptr ? 0 : guard.shim()->enter(Call::kWrite);
  if (code == Shim::kHalf) return transfer((bytes + 1) / 2);
  if (code == Shim::kHalfAndDie) {
    transfer(bytes / 2);
    Shim::die();
  }
  return code != 0 ? fail(code) : transfer(bytes);
}

template <class Sync>
int sync_tracked(int fd, Sync sync) {
  const std::string path = path_of(fd);
  const Guard guard(path);
  if (guard.shim() == nullptr) return sync();
  const int code = guard.shim()->enter(Call::kSync);
  if (code != 0) return fail(code);
  guard.shim()->synced(path, fd);
  return 0;
}

template <class Remove>
int remove_tracked(const std::string& path, Call call, Remove remove) {
  const Guard guard(path);
  if (guard.shim() == nullptr) return remove();
  const int code = guard.shim()->enter(call);
  if (code != 0) return fail(code);
  const int result = remove();
  if (result == 0) guard.shim()->removed(path);
  return result;
}

mode_t mode_argument(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

#define LFT_OPEN(name)                                                   \
  int name(const char* path, int flags, ...) {                           \
    va_list list;                                                        \
    va_start(list, flags);                                               \
    const mode_t mode = mode_argument(flags, list);                      \
    va_end(list);                                                        \
    REAL(name);                                                          \
    return open_tracked(absolute(AT_FDCWD, path), flags,                 \
                        [&] { return real_##name(path, flags, mode); }); \
  }
#define LFT_OPENAT(name)                                                     \
  int name(int at, const char* path, int flags, ...) {                       \
    va_list list;                                                            \
    va_start(list, flags);                                                   \
    const mode_t mode = mode_argument(flags, list);                          \
    va_end(list);                                                            \
    REAL(name);                                                              \
    return open_tracked(absolute(at, path), flags,                           \
                        [&] { return real_##name(at, path, flags, mode); }); \
  }

extern "C" {

LFT_OPEN(open)
LFT_OPEN(open64)
LFT_OPENAT(openat)
LFT_OPENAT(openat64)

ssize_t write(int fd, const void* data, size_t bytes) {
  REAL(write);
  return write_tracked(fd, bytes, [&](size_t count) { return real_write(fd, data, count); });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  REAL(pwrite);
  return write_tracked(fd, bytes,
                       [&](size_t count) { return real_pwrite(fd, data, count, offset); });
}

ssize_t writev(int fd, const iovec* pieces, int count) {
  REAL(writev);
  REAL(write);
  const iovec first = count > 0 ? pieces[0] : iovec{nullptr, 0};
  return write_tracked(fd, first.iov_len, [&](size_t wanted) {
    return wanted < first.iov_len ? real_write(fd, first.iov_base, wanted)
                                  : real_writev(fd, pieces, count);
  });
}

int fsync(int fd) {
  REAL(fsync);
  return sync_tracked(fd, [&] { return real_fsync(fd); });
}

int fdatasync(int fd) {
  REAL(fdatasync);
  return sync_tracked(fd, [&] { return real_fdatasync(fd); });
}

int rename(const char* from, const char* to) {
  REAL(rename);
  const std::string old_path = absolute(AT_FDCWD, from), new_path = absolute(AT_FDCWD, to);
  const Guard guard(new_path);
  if (guard.shim() == nullptr) return real_rename(from, to);
  const int code = guard.shim()->enter(Call::kRename);
  if (code != 0) return fail(code);
  const std::string backup = guard.shim()->keep_replaced(new_path);
  const int result = real_rename(from, to);
  if (result == 0) guard.shim()->renamed(old_path, new_path, backup);
  return result;
}

int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  const std::string full = absolute(AT_FDCWD, path);
  const Guard guard(full);
  if (guard.shim() == nullptr) return real_mkdir(path, mode);
  const int code = guard.shim()->enter(Call::kMkdir);
  if (code != 0) return fail(code);
  const int result = real_mkdir(path, mode);
  if (result == 0) guard.shim()->created(full);
  return result;
}

int unlink(const char* path) {
  REAL(unlink);
  return remove_tracked(absolute(AT_FDCWD, path), Call::kUnlink, [&] { return real_unlink(path); });
}

int unlinkat(int at, const char* path, int flags) {
  REAL(unlinkat);
  return remove_tracked(absolute(at, path), Call::kUnlink,
                        [&] { return real_unlinkat(at, path, flags); });
}

int rmdir(const char* path) {
  REAL(rmdir);
  return remove_tracked(absolute(AT_FDCWD, path), Call::kRmdir, [&] { return real_rmdir(path); });
}

int statvfs(const char* path, struct statvfs* status) {
  REAL(statvfs);
  const int result = real_statvfs(path, status);
  const char* const free = getenv("LFT_SHIM_FREE");
  if (result == 0 && free != nullptr)
    status->f_bavail = static_cast<fsblkcnt_t>(std::atoll(free)) / status->f_frsize;
  return result;
}

}  // extern "C"
