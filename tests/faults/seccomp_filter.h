// Restrictions of a watched child (watched.h): a seccomp filter that kills the program if it opens
// a socket or starts another program, and stops it for its tracer at every call that names a file.
#pragma once
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace lft::test {

#if defined(__x86_64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kAuditArch = 0;  // not known here
#endif

/// Which arguments of a call name a file. A folder that is not an argument (-1) is the working
/// directory; a path after the last is none.
struct FileSyscall {
  long number;
  int folder, path;
  int other_folder = -1, other_path = -1;
};

/// Calls that open a file, to read or to write: `flags` is an argument, or the address of an
/// open_how, which begins with them.
struct OpenSyscall {
  long number;
  int folder, path, flags;
  bool by_address = false;
};

inline const std::vector<OpenSyscall>& open_syscalls() {
  static const std::vector<OpenSyscall> calls = {
#ifdef SYS_open
      {SYS_open, -1, 0, 1},
#endif
      {SYS_openat, 0, 1, 2},
      {SYS_openat2, 0, 1, 2, true},
  };
  return calls;
}

/// Calls that create, change or remove what a path names.
inline const std::vector<FileSyscall>& change_syscalls() {
  static const std::vector<FileSyscall> calls = {
#ifdef SYS_rename  // calls that newer machines have only with a folder argument
      {SYS_creat, -1, 0},          {SYS_mkdir, -1, 0},        {SYS_rmdir, -1, 0},
      {SYS_unlink, -1, 0},         {SYS_symlink, -1, 1},      {SYS_rename, -1, 0, -1, 1},
      {SYS_link, -1, 0, -1, 1},    {SYS_mknod, -1, 0},        {SYS_chmod, -1, 0},
      {SYS_chown, -1, 0},          {SYS_lchown, -1, 0},       {SYS_utime, -1, 0},
      {SYS_utimes, -1, 0},         {SYS_futimesat, 0, 1},
#endif
#ifdef SYS_renameat
      {SYS_renameat, 0, 1, 2, 3},
#endif
      {SYS_mkdirat, 0, 1},         {SYS_unlinkat, 0, 1},      {SYS_symlinkat, 1, 2},
      {SYS_renameat2, 0, 1, 2, 3}, {SYS_linkat, 0, 1, 2, 3},  {SYS_mknodat, 0, 1},
      {SYS_fchmodat, 0, 1},        {SYS_fchownat, 0, 1},      {SYS_utimensat, 0, 1},
      {SYS_truncate, -1, 0},       {SYS_setxattr, -1, 0},     {SYS_lsetxattr, -1, 0},
      {SYS_removexattr, -1, 0},    {SYS_lremovexattr, -1, 0},
  };
  return calls;
}

/// The only allowed execve is the caller's own, recognised by the address of its path, where the
/// new program has nothing mapped.
inline std::vector<sock_filter> watch_filter(uint64_t exec_path) {
  constexpr uint32_t kNumber = offsetof(seccomp_data, nr), kArch = offsetof(seccomp_data, arch),
                     kPath = offsetof(seccomp_data, args);
  const auto load = [](uint32_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
  };
  const auto give = [](uint32_t action) { return sock_filter BPF_STMT(BPF_RET | BPF_K, action); };
  const auto skip_unless = [](uint32_t value, uint8_t skipped) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
  };
  std::vector<sock_filter> filter = {
      load(kArch), sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0),
      give(SECCOMP_RET_KILL_PROCESS), load(kNumber)};
  const auto rule = [&](long number, uint32_t action) {
    filter.push_back(skip_unless(static_cast<uint32_t>(number), 1));
    filter.push_back(give(action));
  };
#ifdef __x86_64__
  constexpr uint32_t kX32 = 0x40000000;  // the same calls under other numbers
  filter.push_back(sock_filter BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1));
  filter.push_back(give(SECCOMP_RET_KILL_PROCESS));
#endif
  for (const long number :
       {SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_sendto,
        SYS_sendmsg, SYS_sendmmsg, SYS_io_uring_setup, SYS_execveat}) {
    rule(number, SECCOMP_RET_KILL_PROCESS);
  }
  for (const OpenSyscall& call : open_syscalls()) rule(call.number, SECCOMP_RET_TRACE);
  for (const FileSyscall& call : change_syscalls()) rule(call.number, SECCOMP_RET_TRACE);
  filter.insert(filter.end(), {skip_unless(SYS_execve, 5), load(kPath),
                               skip_unless(static_cast<uint32_t>(exec_path), 2), load(kPath + 4),
                               sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                    static_cast<uint32_t>(exec_path >> 32), 1, 0),
                               give(SECCOMP_RET_KILL_PROCESS), give(SECCOMP_RET_ALLOW)});
  return filter;
}

}  // namespace lft::test
