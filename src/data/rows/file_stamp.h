// Whether a file is still the one that was read, without reading it again; and its content.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/io/file_handle.h"

namespace lft::data {

/// What the system says of a file. Any write moves its times, the second of which no program can
/// set: equal stamps are equal bytes, if the stamp was taken when its times were past.
struct FileStamp {
  int64_t bytes = 0, modified = 0, changed = 0, inode = 0;  // times in ns
  int64_t taken = 0;                                        // when it was asked, in ns
  /// Of `path`, which is there.
  static FileStamp of(const std::string& path);
  bool same(const FileStamp& other) const {
    return bytes == other.bytes && modified == other.modified && changed == other.changed &&
           inode == other.inode;
  }
  /// Whether a write after it would have another time: clocks of file systems are coarse.
  bool settled() const;

  void write(std::map<std::string, std::string>& facts) const;
  static std::optional<FileStamp> read(const std::map<std::string, std::string>& facts);
};

/// The SHA-256 of the SHA-256s of its pieces of 16 MiB, which all cores compute.
std::string content_hash(const io::FileHandle& file);

}  // namespace lft::data
