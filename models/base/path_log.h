// Which module an autograd node belongs to: nodes are numbered as they are made, and the log keeps
// the module path by number.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/call.h"

namespace lft {

/// While it lives, on this thread, it follows every call() (models/base/call.h). One at a time; the
/// inner one replaces the outer.
class PathLog {
 public:
  PathLog();
  ~PathLog();
  PathLog(const PathLog&) = delete;

  /// The path of the innermost call in which the node of this number was made on this thread; ""
  /// where it was made outside any.
  std::string path_of(uint64_t sequence_number) const;
  /// Forgets what is behind; to be called outside any call().
  void clear();

  static PathLog* current();
  void enter(const char* name, int64_t index);
  /// Until leave(), a path of its own: a block that runs again inside the backward pass.
  void suspend(const ModulePath& path);
  void leave();

 private:
  struct Entry {
    int32_t parent;
    const char* name;
    int64_t index;
  };
  struct Mark {
    uint64_t from;  // number of the first node
    int32_t entry;
  };
  void mark(int32_t entry);
  void append(const char* name, int64_t index);

  PathLog* previous_;
  std::vector<Entry> entries_;
  std::vector<Mark> marks_;
  std::vector<int32_t> stack_;  // of the calls that are running
  int32_t at_ = -1;
};

}  // namespace lft
