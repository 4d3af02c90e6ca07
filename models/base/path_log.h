// Maps autograd nodes to modules: nodes are numbered as they are created, and the log records the
// module path by number.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/call.h"

namespace lft {

/// Records every call() (models/base/call.h) of this thread during its lifetime. One log records at
/// a time; the inner one replaces the outer one.
class PathLog {
 public:
  PathLog();
  ~PathLog();
  PathLog(const PathLog&) = delete;

  /// The path of the innermost call of this thread that created the node with this number; "" if it
  /// was created outside any call.
  std::string path_of(uint64_t sequence_number) const;
  /// Clears the log; must be called outside any call().
  void clear();

  static PathLog* current();
  void enter(const char* name, int64_t index);
  /// Starts a separate path until leave(), for a block that runs again inside the backward pass.
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
  std::vector<int32_t> stack_;  // the calls that are running
  int32_t at_ = -1;
};

}  // namespace lft
