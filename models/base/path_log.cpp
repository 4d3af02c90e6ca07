#include "models/base/path_log.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace lft {
namespace {

thread_local PathLog* current_log = nullptr;

}  // namespace

PathLog::PathLog() : previous_(std::exchange(current_log, this)) {}
PathLog::~PathLog() { current_log = previous_; }
PathLog* PathLog::current() { return current_log; }

std::string PathLog::path_of(uint64_t sequence_number) const {
  const auto behind =
      std::upper_bound(marks_.begin(), marks_.end(), sequence_number,
                       [](uint64_t number, const Mark& mark) { return number < mark.from; });
  std::string path;
  if (behind == marks_.begin()) return path;
  for (int32_t at = (behind - 1)->entry; at >= 0; at = entries_[static_cast<size_t>(at)].parent) {
    const Entry& entry = entries_[static_cast<size_t>(at)];
    std::string part = entry.name;
    if (entry.index >= 0) part += "." + std::to_string(entry.index);
    path = path.empty() ? part : part + "." + path;
  }
  return path;
}

void PathLog::clear() {
  entries_.clear();
  marks_.clear();
  stack_.clear();
  at_ = -1;
}

void PathLog::mark(int32_t entry) {
  at_ = entry;
  marks_.push_back({at::sequence_number::peek(), entry});
}

void PathLog::append(const char* name, int64_t index) {
  entries_.push_back({at_, name, index});
  mark(static_cast<int32_t>(entries_.size()) - 1);
}

void PathLog::enter(const char* name, int64_t index) {
  stack_.push_back(at_);
  if (at::GradMode::is_enabled()) append(name, index);  // otherwise no node is created
}

void PathLog::suspend(const ModulePath& path) {
  stack_.push_back(at_);
  mark(-1);
  for (const PathPart& part : path) append(part.name, part.index);
}

void PathLog::leave() {
  if (stack_.empty()) return;  // the call began before the log
  if (stack_.back() != at_) mark(stack_.back());
  stack_.pop_back();
}

}  // namespace lft
