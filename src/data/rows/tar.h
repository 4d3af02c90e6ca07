// The members of a tar file: names, offsets and sizes of its regular files, from its headers only.
// ustar, GNU's long names and pax headers are read; links, devices and sparse files are refused.
#pragma once
#include <cstdint>
#include <string>

#include "src/io/file_handle.h"

namespace lft::data {

constexpr uint64_t kTarBlock = 512;

struct TarMember {
  std::string name;
  uint64_t header = 0;             // offset of its first header
  uint64_t offset = 0, bytes = 0;  // offset and size of its content in the file
};

/// Whether these first bytes of a file are a tar header: its checksum is right.
bool is_tar(std::string_view head);

class TarReader {
 public:
  /// Reads from the header at `at` up to the end of the archive, or to `end` if a header begins
  /// there.
  explicit TarReader(const io::FileHandle& file, uint64_t at = 0, uint64_t end = UINT64_MAX);
  /// The next regular file; folders are skipped. False at the end. kInput with the file and the
  /// byte offset of a malformed header, truncated member, missing end, data after it, or link.
  bool next(TarMember& member);
  uint64_t at() const { return at_; }  // offset of the next header

 private:
  /// Fields of a pax or GNU header for the member after it.
  struct Override {
    std::string name;
    bool has_bytes = false;
    uint64_t bytes = 0;
  };
  std::string read_long(uint64_t bytes, const char* what);
  void read_pax(uint64_t bytes, Override& over);
  void check_end();
  [[noreturn]] void broken(const std::string& what, const std::string& found = "") const;

  const io::FileHandle& file_;
  const uint64_t size_, end_;
  uint64_t at_;
};

/// One ustar header of a regular file, as `TarReader` and tar read it; names of more than 100 bytes
/// are split at a slash. kInternal if that is impossible, and for 8 GiB and more.
std::string tar_header(const std::string& name, uint64_t bytes);

}  // namespace lft::data
