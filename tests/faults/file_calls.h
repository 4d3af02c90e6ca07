// The files named in the calls of a traced process, as absolute paths.
#pragma once
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "faults/seccomp_filter.h"

namespace lft::test {

struct FileCall {
  std::string path;      // absolute
  bool changes = false;  // true: may create, change or remove the file; false: opened for reading
};

/// Reads and resolves the paths named by a stopped process.
class NamedFiles {
 public:
  explicit NamedFiles(pid_t process) : process_(process) {}

  std::string path(const uint64_t* arguments, int folder, int name, bool follow) const {
    const std::string base =
        folder < 0 ? link("cwd") : folder_path(static_cast<int>(arguments[folder]));
    const std::string given = text(arguments[name]);
    return resolved(given.starts_with('/') ? given : base + (given.empty() ? "" : "/" + given),
                    follow);
  }

  /// Contents of an open_how; the default is a call that may write anywhere.
  open_how how(uint64_t address) const {
    open_how found{};
    iovec here{&found, sizeof found}, there{reinterpret_cast<void*>(address), sizeof found};
    if (process_vm_readv(process_, &here, 1, &there, 1, 0) == sizeof found) return found;
    return {.flags = O_RDWR, .mode = 0, .resolve = 0};
  }
  /// Whether a path from path() is inside the folder from which the call starts.
  bool is_beneath(const std::string& path, const uint64_t* arguments, int folder) const {
    return path.starts_with(resolved(folder_path(static_cast<int>(arguments[folder])), true) + "/");
  }

 private:
  std::string link(const std::string& name) const {
    std::error_code ignored;
    return std::filesystem::read_symlink("/proc/" + std::to_string(process_) + "/" + name, ignored)
        .string();
  }
  std::string folder_path(int descriptor) const {
    return descriptor == AT_FDCWD ? link("cwd") : link("fd/" + std::to_string(descriptor));
  }

  /// /proc/self differs between the process and this one.
  static std::string resolved(const std::filesystem::path& path, bool follow) {
    std::error_code ignored;
    if (path.string().starts_with("/proc/self/")) return path.lexically_normal().string();
    const std::filesystem::path name = path.filename();
    if (follow || name.empty() || name == "." || name == "..")
      return std::filesystem::weakly_canonical(path, ignored).string();
    return (std::filesystem::weakly_canonical(path.parent_path(), ignored) / name).string();
  }

  /// Reads up to the end of each page: the next page may not be mapped.
  std::string text(uint64_t address) const {
    constexpr uint64_t kPage = 4096, kLongest = 2 * 4096;
    std::string found;
    while (address != 0 && found.size() < kLongest) {
      char piece[kPage];
      iovec here{piece, kPage - address % kPage},
          there{reinterpret_cast<void*>(address), kPage - address % kPage};
      const ssize_t got = process_vm_readv(process_, &here, 1, &there, 1, 0);
      if (got <= 0) return found;
      const size_t length = strnlen(piece, static_cast<size_t>(got));
      found.append(piece, length);
      if (length < static_cast<size_t>(got)) return found;
      address += static_cast<uint64_t>(got);
    }
    return found;
  }

  pid_t process_;
};

/// For a process stopped by the filter.
inline void note_call(pid_t process, std::vector<FileCall>& calls) {
  __ptrace_syscall_info info{};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, process, sizeof info, &info) <= 0 ||
      info.op != PTRACE_SYSCALL_INFO_SECCOMP) {
    calls.push_back({"a call that could not be read", true});
    return;
  }
  const auto number = static_cast<long>(info.seccomp.nr);
  const uint64_t* const arguments = info.seccomp.args;
  const NamedFiles files(process);
  for (const OpenSyscall& call : open_syscalls()) {
    if (call.number != number) continue;
    const open_how how = call.by_address
                             ? files.how(arguments[call.flags])
                             : open_how{.flags = arguments[call.flags], .mode = 0, .resolve = 0};
    const bool changes =
        (how.flags & O_ACCMODE) != O_RDONLY || (how.flags & (O_CREAT | O_TRUNC)) != 0;
    const std::string path =
        files.path(arguments, call.folder, call.path, (how.flags & O_NOFOLLOW) == 0);
    // Paths that leave the folder are refused by the kernel: no file is named.
    if ((how.resolve & RESOLVE_BENEATH) != 0 && !files.is_beneath(path, arguments, call.folder))
      continue;
    calls.push_back({path, changes});
  }
  for (const FileSyscall& call : change_syscalls()) {
    if (call.number != number) continue;
    calls.push_back({files.path(arguments, call.folder, call.path, false), true});
    if (call.other_path >= 0)
      calls.push_back({files.path(arguments, call.other_folder, call.other_path, false), true});
  }
}

}  // namespace lft::test
