// Whole-file reads, durable writes and atomically created directories. Every write goes through
// libc by absolute path.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lft::io {

/// Regular files only (opened O_NONBLOCK, then S_ISREG), at most max_bytes. kInput for a missing,
/// non-regular or too large file, and for a short read.
std::string read_file(const std::string& path, uint64_t max_bytes = 1u << 30);
/// Temporary file in the same folder, fsync, rename, fsync of the folder. A device, pipe or socket
/// is written to instead. kResource on failure, with bytes needed and free on ENOSPC.
void write_file_atomic(const std::string& path, std::string_view text);
/// Runs `fill(tmp_dir)` and renames tmp_dir (".tmp-<name>" next to it) to `path`; fsyncs files and
/// folders. An existing directory is replaced: it is deleted if the new one has a file for each of
/// its names, otherwise kept under a name that a warning contains. If anything fails, the old one
/// remains and tmp_dir is deleted.
void write_dir_atomic(const std::string& path, const std::function<void(const std::string&)>& fill);
void make_dirs(const std::string& path);
/// Deletes a file or a whole tree; symlinks are deleted, not followed. A missing path is no error.
void remove_tree(const std::string& path);
/// rename(2), then fsync of the folder that contains the new name. kResource on failure.
void rename_synced(const std::string& from, const std::string& to);
void sync_dir(const std::string& path);
std::vector<std::string> list_dir(
    const std::string& path);  // names, sorted, without . and ..; kInput when it cannot be read
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
std::string absolute_path(const std::string& path);  // resolved, symlinks followed where they exist
bool is_inside(const std::string& path, const std::string& root);  // equal or below, resolved
uint64_t free_bytes(const std::string& path);

}  // namespace lft::io
