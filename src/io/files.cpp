#include "src/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/io/file_handle.h"

namespace lft::io {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& rooted) { return fs::path(rooted).parent_path().string(); }

/// "/a/b" for "/a/b/" and "/a/./b", so that the last component is the name.
std::string tidy_path(const std::string& path) {
  std::string tidy = fs::path(rooted_path(path)).lexically_normal().string();
  while (tidy.size() > 1 && tidy.back() == '/') tidy.pop_back();
  return tidy;
}

/// The path of a replaced directory until it is deleted. A leftover is from a crash after which a
/// newer directory was written.
std::string dead_name(const std::string& tidy) {
  return folder_of(tidy) + "/.dead-" + fs::path(tidy).filename().string();
}

std::string temporary_name(const std::string& tidy) {
  return folder_of(tidy) + "/.tmp-" + fs::path(tidy).filename().string();
}

bool status_of(const std::string& path, struct stat* status) {
  return lstat(path.c_str(), status) == 0;
}

void rename_or_throw(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) throw_io_error("rename " + from, to, errno);
}

/// Clean-up during another error: a failure here must not hide that error.
void remove_quietly(const std::string& path) {
  try {
    remove_tree(path);
  } catch (const Error&) {
    warning("left behind: " + path);
  }
}

void sync_tree(const std::string& path) {
  struct stat status {};
  if (!status_of(path, &status)) throw_io_error("look at", path, errno);
  if (S_ISREG(status.st_mode)) FileHandle::open_to_read(path).sync();
  if (!S_ISDIR(status.st_mode)) return;
  for (const std::string& name : list_dir(path)) sync_tree(path + "/" + name);
  sync_dir(path);
}

/// Whether replacing `old_dir` with `new_dir` would lose a file.
bool holds_other_files(const std::string& old_dir, const std::string& new_dir) {
  for (const std::string& name : list_dir(old_dir)) {
    struct stat ignored {};
    if (!status_of(new_dir + "/" + name, &ignored)) return true;
    const std::string below = old_dir + "/" + name;
    if (is_directory(below) && holds_other_files(below, new_dir + "/" + name)) return true;
  }
  return false;
}

std::string unused_name(const std::string& stem) {
  struct stat ignored {};
  for (int number = 1;; ++number) {
    std::string name = stem + "-" + std::to_string(number);
    if (!status_of(name, &ignored)) return name;
  }
}

/// Two renames: a crash between them leaves the old directory under its .dead- name and the
/// complete new one under its .tmp- name.
void replace_dir(const std::string& fresh, const std::string& path) {
  const bool keep = holds_other_files(path, fresh);
  const std::string old = keep ? unused_name(path + ".old") : dead_name(path);
  if (!keep) remove_tree(old);
  rename_or_throw(path, old);
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    const int code = errno;
    if (rename(old.c_str(), path.c_str()) != 0) warning("the former " + path + " is now " + old);
    throw_io_error("rename " + fresh, path, code);
  }
  sync_dir(folder_of(path));
  if (keep) {
    warning(path + " contained files that the new " + path +
            " does not have; its former contents are kept in " + old);
  } else {
    remove_quietly(old);
  }
}

}  // namespace

std::string read_file(const std::string& path, uint64_t max_bytes) {
  const FileHandle file = FileHandle::open_to_read(path);
  const uint64_t size = file.size();
  if (size > max_bytes) {
    refuse(ErrorKind::kInput, "file too large", path, std::to_string(size) + " bytes",
           "at most " + std::to_string(max_bytes) + " bytes");
  }
  std::string bytes(size, '\0');
  file.read_at(0, bytes.data(), size);
  return bytes;
}

void write_file_atomic(const std::string& path, std::string_view text) {
  if (FileHandle stream = FileHandle::open_stream(path); stream.is_open()) {
    stream.write(text.data(), text.size());
    return stream.close();
  }
  const std::string target = tidy_path(path), temporary = temporary_name(target);
  try {
    FileHandle file = FileHandle::create(temporary, text.size());
    file.write(text.data(), text.size());
    file.sync();
    file.close();
    rename_or_throw(temporary, target);
  } catch (const Error&) {
    remove_quietly(temporary);
    throw;
  }
  sync_dir(folder_of(target));
}

void write_dir_atomic(const std::string& path,
                      const std::function<void(const std::string&)>& fill) {
  const std::string target = tidy_path(path), temporary = temporary_name(target);
  struct stat status {};
  const bool replaces = status_of(target, &status);
  if (replaces && !S_ISDIR(status.st_mode)) throw_io_error("make a directory", target, EEXIST);
  make_dirs(folder_of(target));
  try {
    remove_tree(temporary);
    make_dirs(temporary);
    fill(temporary);
    sync_tree(temporary);
    if (replaces) {
      replace_dir(temporary, target);
      return;
    }
    rename_or_throw(temporary, target);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  sync_dir(folder_of(target));
  remove_quietly(dead_name(target));
}

void make_dirs(const std::string& path) {
  const std::string target = tidy_path(path);
  if (is_directory(target)) return;
  if (folder_of(target) != target) make_dirs(folder_of(target));
  if (mkdir(target.c_str(), 0777) == 0) return sync_dir(folder_of(target));
  if (errno != EEXIST || !is_directory(target)) throw_io_error("make a directory", target, errno);
}

void remove_tree(const std::string& path) {
  struct stat status {};
  if (!status_of(path, &status)) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    throw_io_error("look at", path, errno);
  }
  if (!S_ISDIR(status.st_mode)) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) throw_io_error("delete", path, errno);
    return;
  }
  for (const std::string& name : list_dir(path)) remove_tree(path + "/" + name);
  if (rmdir(path.c_str()) != 0 && errno != ENOENT) throw_io_error("delete", path, errno);
}

void rename_synced(const std::string& from, const std::string& to) {
  const std::string target = tidy_path(to);
  rename_or_throw(tidy_path(from), target);
  sync_dir(folder_of(target));
}

void sync_dir(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_io_error("open a directory", path, errno);
  int failed = 0;
  do failed = fsync(fd);
  while (failed != 0 && errno == EINTR);
  const int code = failed != 0 ? errno : 0;
  close(fd);
  // Some network file systems do not support fsync of a directory and return EINVAL.
  if (code != 0 && code != EINVAL)
    throw_io_error("bring a directory to the disk (fsync)", path, code);
}

std::vector<std::string> list_dir(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) {
    refuse(ErrorKind::kInput, "cannot list a directory", path, strerror(errno), {},
           "name a directory that this user may list");
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string absolute_path(const std::string& path) {
  std::error_code code;
  const fs::path resolved = fs::weakly_canonical(rooted_path(path), code);
  if (code) {
    refuse(ErrorKind::kInput, "cannot resolve a path", path, code.message(), {},
           "name the place that its links lead to, one that this user may enter");
  }
  std::string text = resolved.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool is_inside(const std::string& path, const std::string& root) {
  const fs::path below = absolute_path(path), above = absolute_path(root);
  return std::mismatch(above.begin(), above.end(), below.begin(), below.end()).first == above.end();
}

uint64_t free_bytes(const std::string& path) {
  struct statvfs status {};
  for (fs::path at = rooted_path(path);; at = at.parent_path()) {
    if (statvfs(at.c_str(), &status) == 0)
      return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
    if (at == at.parent_path()) return 0;
  }
}

}  // namespace lft::io
