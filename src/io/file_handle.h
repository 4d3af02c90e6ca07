// An open file that reads and writes completely: EINTR and short transfers are handled, and every
// failure is an lft::Error that names the file.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace lft::io {

class FileHandle {
 public:
  FileHandle() = default;
  /// Opens a regular file (O_NONBLOCK, then S_ISREG: a FIFO or device never hangs); otherwise
  /// kInput.
  static FileHandle open_to_read(const std::string& path);
  /// Opens `name` in or below `folder` without following symlinks out of it:
  /// openat2(RESOLVE_BENEATH). Not open if that is impossible (an older kernel, a sandbox, a
  /// symlink) or it is no regular file: use image_path() then.
  static FileHandle open_beneath(const std::string& folder, const std::string& name);
  /// Opens `bytes` bytes of a regular file from `offset` on as a separate file, which errors call
  /// `name`.
  static FileHandle open_part(const std::string& path, uint64_t offset, uint64_t bytes,
                              const std::string& name);
  /// Bytes in memory as a readable file, which errors call `name`.
  static FileHandle of_bytes(const std::string& name, std::shared_ptr<const std::string> bytes);
  /// Creates or truncates a file. `expected_bytes` is its final size, for the message when the disk
  /// is full.
  static FileHandle create(const std::string& path, uint64_t expected_bytes);
  /// Opens a device, pipe or socket for writing. Not open if `path` is none; kResource if it cannot
  /// be opened, such as a pipe without a reader.
  static FileHandle open_stream(const std::string& path);
  /// Opens or creates a file; writes go to its end.
  static FileHandle open_to_append(const std::string& path);
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  const std::string& path() const { return path_; }
  bool is_open() const { return fd_ >= 0 || held_ != nullptr; }
  uint64_t size() const;
  void read_at(uint64_t offset, void* destination,
               uint64_t bytes) const;  // reads all bytes: a short read is kInput
  /// Appends the next `most` bytes from `offset` on, or those up to `size` if they are fewer, and
  /// advances `offset`; false at the end.
  bool append_next(std::string& buffer, int64_t& offset, int64_t size, int64_t most) const;
  void write(const void* data, uint64_t bytes);  // kResource
  void truncate(uint64_t bytes);                 // kResource
  void sync();   // fsync; a failure is kResource and is never retried (the kernel drops the pages
                 // that it could not write)
  void close();  // errors that only appear here are kResource

 private:
  FileHandle(std::string path, int fd, uint64_t expected_bytes)
      : path_(std::move(path)), fd_(fd), expected_bytes_(expected_bytes) {}
  std::string path_;
  int fd_ = -1;
  uint64_t expected_bytes_ = 0;  // the size when it was opened for reading
  uint64_t not_begun_ = 0;       // bytes written since the last sync_file_range()
  uint64_t begin_ = 0;           // offset of a part
  bool is_part_ = false;         // the file is a part of expected_bytes_ bytes
  std::shared_ptr<const std::string> held_;
};

/// Throws kResource for errno `code` after `action` ("write", "rename") on `path`; on a full disk
/// it names the bytes needed (if not 0) and free.
[[noreturn]] void throw_io_error(const std::string& action, const std::string& path, int code,
                                 uint64_t needed_bytes = 0);
/// The absolute path, without resolving symlinks.
std::string rooted_path(const std::string& path);

}  // namespace lft::io
