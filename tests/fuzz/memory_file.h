// An in-memory file for readers that require a path.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace lft::fuzz {

class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("lft-fuzz", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void set(std::string_view bytes) {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (ftruncate(fd_, 0) != 0 || pwrite(fd_, bytes.data(), bytes.size(), 0) != size)
      throw std::runtime_error("cannot fill a memory file");
  }

 private:
  int fd_;
};

}  // namespace lft::fuzz
