#include "src/io/file_handle.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/io/files.h"

namespace lft::io {
namespace {

constexpr uint64_t kBeginsWriting = 64 << 20;  // bytes after which write-back to the disk starts,
                                               // so that sync() is short

constexpr uint64_t kMaxTransfer = 1u << 30;  // Linux transfers at most 2 GiB - 4 KiB per call

/// The advice for an errno of any operation on a path.
std::string remedy(int code) {
  switch (code) {
    case EACCES:
    case EPERM:
      return "give this user the right to it, or use another path";
    case EROFS:
      return "use a path on a disk that can be written";
    case ENOTDIR:
      return "a part of the path is a file: use another path";
    case EISDIR:
      return "name a file, not a directory";
    case ENAMETOOLONG:
      return "use a shorter path";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case ENXIO:
      return "start the program that reads the pipe first";
    case EFBIG:
      return "raise the limit on the size of a file (ulimit -f), or use a disk that takes larger "
             "files";
    case EIO:
      return "check the disk, or use another one";
    case ENOSPC:
    case EDQUOT:
      return "free space on that disk, or write to another one";
    default:
      return "";
  }
}

[[noreturn]] void throw_unreadable(const std::string& what, const std::string& path, int code) {
  refuse(ErrorKind::kInput, what, path, strerror(code), "", remedy(code));
}

int open_retrying(const std::string& path, int flags) {
  int fd = -1;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

void throw_io_error(const std::string& action, const std::string& path, int code,
                    uint64_t needed_bytes) {
  ErrorInfo info{"cannot " + action, path, strerror(code), {}, remedy(code)};
  if (code == ENOSPC || code == EDQUOT) {
    const uint64_t free = free_bytes(path);
    info.found += ": " + std::to_string(free) + " bytes free (" +
                  format_bytes(static_cast<double>(free)) + ")";
    constexpr uint64_t kBlock = 4096;  // possible size of a directory entry
    const uint64_t needed = needed_bytes > 0 ? needed_bytes : kBlock;
    info.expected = std::to_string(needed) + " bytes needed (" +
                    format_bytes(static_cast<double>(needed)) + ")";
  }
  if (code == ENOENT) info.next = "make its folder first";
  throw Error(ErrorKind::kResource, info);
}

std::string rooted_path(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    refuse(ErrorKind::kInput, "no such path", path, "a NUL byte in the name");
  std::error_code code;
  const auto rooted = std::filesystem::absolute(path, code);
  if (code || path.empty())
    refuse(ErrorKind::kInput, "no such path", path,
           path.empty() ? "an empty name" : code.message());
  return rooted.string();
}

FileHandle FileHandle::open_to_read(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    refuse(ErrorKind::kInput, "cannot open a file", path, "a NUL byte in the name");
  const int fd = open_retrying(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) throw_unreadable("cannot open a file", path, errno);
  FileHandle handle(path, fd, 0);
  struct stat status {};
  if (fstat(fd, &status) != 0) throw_unreadable("cannot open a file", path, errno);
  if (!S_ISREG(status.st_mode))
    refuse(ErrorKind::kInput, "not a regular file", path,
           S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket", "a file");
  handle.expected_bytes_ = static_cast<uint64_t>(status.st_size);
  return handle;
}

FileHandle FileHandle::open_beneath(const std::string& folder, const std::string& name) {
  if (name.find('\0') != std::string::npos || folder.find('\0') != std::string::npos) return {};
  const int root = open_retrying(folder, O_PATH | O_DIRECTORY);
  if (root < 0) return {};
  open_how how{};
  how.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  do fd = syscall(SYS_openat2, root, name.c_str(), &how, sizeof how);
  while (fd < 0 && errno == EINTR);
  ::close(root);
  if (fd < 0) return {};
  FileHandle handle(folder + "/" + name, static_cast<int>(fd), 0);
  struct stat status {};
  if (fstat(handle.fd_, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  handle.expected_bytes_ = static_cast<uint64_t>(status.st_size);
  return handle;
}

FileHandle FileHandle::open_part(const std::string& path, uint64_t offset, uint64_t bytes,
                                 const std::string& name) {
  FileHandle handle = open_to_read(path);
  handle.path_ = name;
  handle.begin_ = offset;
  handle.is_part_ = true;
  handle.expected_bytes_ = bytes;
  return handle;
}

FileHandle FileHandle::of_bytes(const std::string& name, std::shared_ptr<const std::string> bytes) {
  FileHandle handle(name, -1, bytes->size());
  handle.held_ = std::move(bytes);
  return handle;
}

FileHandle FileHandle::create(const std::string& path, uint64_t expected_bytes) {
  const std::string rooted = rooted_path(path);
  const int fd = open_retrying(rooted, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0) throw_io_error("create a file", rooted, errno, expected_bytes);
  return FileHandle(rooted, fd, expected_bytes);
}

FileHandle FileHandle::open_stream(const std::string& path) {
  const std::string rooted = rooted_path(path);
  struct stat status {};
  if (stat(rooted.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
    return {};
  const int fd = open_retrying(rooted, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw_io_error("open an output", rooted, errno);
  fcntl(fd, F_SETFL, 0);  // without O_NONBLOCK
  return FileHandle(rooted, fd, 0);
}

FileHandle FileHandle::open_to_append(const std::string& path) {
  const std::string rooted = rooted_path(path);
  const int fd = open_retrying(rooted, O_WRONLY | O_CREAT | O_APPEND);
  if (fd < 0) throw_io_error("open a file", rooted, errno);
  return FileHandle(rooted, fd, 0);
}

FileHandle::FileHandle(FileHandle&& other) noexcept { *this = std::move(other); }

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(expected_bytes_, other.expected_bytes_);
  std::swap(not_begun_, other.not_begun_);
  std::swap(begin_, other.begin_);
  std::swap(is_part_, other.is_part_);
  std::swap(held_, other.held_);
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

uint64_t FileHandle::size() const {
  if (is_part_ || held_ != nullptr) return expected_bytes_;
  struct stat status {};
  if (fstat(fd_, &status) != 0) throw_io_error("ask the size of a file", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

void FileHandle::read_at(uint64_t offset, void* destination, uint64_t bytes) const {
  const auto ends_early = [&](uint64_t found) {
    refuse(ErrorKind::kInput, "the file ends early", path_, std::to_string(found) + " bytes",
           std::to_string(std::max(expected_bytes_, offset + bytes)) + " bytes",
           "it was truncated while it was read: restore it");
  };
  const bool bounded = is_part_ || held_ != nullptr;
  if (bounded && (offset > expected_bytes_ || bytes > expected_bytes_ - offset)) ends_early(size());
  if (held_ != nullptr) {
    held_->copy(static_cast<char*>(destination), bytes, offset);
    return;
  }
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        pread(fd_, static_cast<char*>(destination) + done, std::min(bytes - done, kMaxTransfer),
              static_cast<off_t>(begin_ + offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_unreadable("cannot read a file", path_, errno);
    if (got == 0) ends_early(is_part_ ? offset + done : size());
    done += static_cast<uint64_t>(got);
  }
}

bool FileHandle::append_next(std::string& buffer, int64_t& offset, int64_t size,
                             int64_t most) const {
  const auto bytes = static_cast<size_t>(std::min(most, size - offset));
  if (bytes == 0) return false;
  const size_t before = buffer.size();
  buffer.resize(before + bytes);
  read_at(static_cast<uint64_t>(offset), buffer.data() + before, bytes);
  offset += static_cast<int64_t>(bytes);
  return true;
}

void FileHandle::write(const void* data, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t wrote =
        ::write(fd_, static_cast<const char*>(data) + done, std::min(bytes - done, kMaxTransfer));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0)
      throw_io_error("write a file", path_, wrote == 0 ? EIO : errno,
                     std::max(expected_bytes_, bytes));
    done += static_cast<uint64_t>(wrote);
  }
  not_begun_ += bytes;
  if (not_begun_ < kBeginsWriting) return;
  not_begun_ = 0;
  sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);  // sync() reports failures
}

void FileHandle::truncate(uint64_t bytes) {
  int failed = 0;
  do failed = ftruncate(fd_, static_cast<off_t>(bytes));
  while (failed != 0 && errno == EINTR);
  if (failed != 0) throw_io_error("cut a file", path_, errno);
}

void FileHandle::sync() {
  int failed = 0;
  do failed = fsync(fd_);
  while (failed != 0 && errno == EINTR);
  if (failed != 0)
    throw_io_error("bring a file to the disk (fsync)", path_, errno, expected_bytes_);
}

void FileHandle::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR)
    throw_io_error("close a file", path_, errno, expected_bytes_);
}

}  // namespace lft::io
