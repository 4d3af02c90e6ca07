// The contents of a folder, to be compared with a later state.
#pragma once
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/base/hash.h"

namespace lft::test {

/// By path: kind and permissions, size, modification times, and the content's sha256. A file that
/// was created and removed again changes the times of its folder.
using Snapshot = std::map<std::string, std::string>;

inline std::string entry_text(const std::filesystem::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return "unreadable";
  const auto time = [](const timespec& at) {
    return " " + std::to_string(at.tv_sec) + "." + std::to_string(at.tv_nsec);
  };
  std::string text = std::to_string(status.st_mode) + time(status.st_mtim) + time(status.st_ctim);
  if (S_ISDIR(status.st_mode)) return text;
  if (S_ISLNK(status.st_mode)) return text + " to " + std::filesystem::read_symlink(path).string();
  return text + " " + std::to_string(status.st_size) + " " + sha256_file(path.string());
}

/// `left_out` names paths that may change, including everything below them.
inline Snapshot snapshot(const std::string& root,
                         const std::function<bool(const std::string&)>& left_out) {
  Snapshot found = {{root, entry_text(root)}};
  for (std::filesystem::recursive_directory_iterator at(root), end; at != end; ++at) {
    const std::string path = at->path().string();
    if (!left_out(path)) found[path] = entry_text(path);
  }
  return found;
}

/// Paths that are new, gone or changed.
inline std::vector<std::string> changes(const Snapshot& before, const Snapshot& after) {
  std::vector<std::string> found;
  for (const auto& [path, text] : before) {
    const auto now = after.find(path);
    if (now == after.end()) {
      found.push_back("gone: " + path);
    } else if (now->second != text) {
      found.push_back("changed: " + path);
    }
  }
  for (const auto& [path, text] : after) {
    if (!before.contains(path)) found.push_back("new: " + path);
  }
  return found;
}

}  // namespace lft::test
