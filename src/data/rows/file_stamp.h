// Detects whether a file has changed without reading it, and hashes its content.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/io/file_handle.h"

namespace lft::data {

/// The metadata of a file. Every write changes its times, the second of which no program can set,
/// so that equal stamps mean equal bytes if the stamp was taken after these times.
struct FileStamp {
  int64_t bytes = 0, modified = 0, changed = 0, inode = 0;  // times in ns
  int64_t taken = 0;                                        // time of the query, in ns
  /// The stamp of an existing file.
  static FileStamp of(const std::string& path);
  bool same(const FileStamp& other) const {
    return bytes == other.bytes && modified == other.modified && changed == other.changed &&
           inode == other.inode;
  }
  /// Whether a later write would change the time: file system clocks are coarse.
  bool settled() const;

  void write(std::map<std::string, std::string>& facts) const;
  static std::optional<FileStamp> read(const std::map<std::string, std::string>& facts);
};

/// The SHA-256 of the SHA-256s of its pieces of 16 MiB, computed by all cores.
std::string content_hash(const io::FileHandle& file);

}  // namespace lft::data
