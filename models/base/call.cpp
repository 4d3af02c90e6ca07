#include "models/base/call.h"

#include <string_view>
#include <utility>

#include "models/base/path_log.h"

namespace lft {
namespace {

thread_local ModulePath parts;
thread_local CallObserver* current_observer = nullptr;
constexpr std::string_view kInModule = "in module ";  // prefix of a line in an error's context

}  // namespace

ObserveCalls::ObserveCalls(CallObserver& observer) : previous_(current_observer) {
  current_observer = &observer;
}
ObserveCalls::~ObserveCalls() { current_observer = previous_; }

namespace call_detail {

CallObserver* observer() { return current_observer; }
PathScope::PathScope(const char* name, int64_t index) {
  parts.push_back({name, index});
  if (PathLog* log = PathLog::current()) log->enter(name, index);
}
PathScope::~PathScope() {
  parts.pop_back();
  if (PathLog* log = PathLog::current()) log->leave();
}

std::string path() {
  std::string result;
  for (const PathPart& part : parts) {
    if (!result.empty()) result += '.';
    result += part.name;
    if (part.index >= 0) result += '.' + std::to_string(part.index);
  }
  return result;
}

void add_path(c10::Error& error) {
  if (module_path_of(error).empty()) error.add_context(std::string(kInModule) + path());
}

}  // namespace call_detail

ModulePath module_path() { return parts; }
RestoreModulePath::RestoreModulePath(ModulePath path)
    : previous_(std::exchange(parts, std::move(path))) {
  if (PathLog* log = PathLog::current()) log->suspend(parts);
}
RestoreModulePath::~RestoreModulePath() {
  parts = std::move(previous_);
  if (PathLog* log = PathLog::current()) log->leave();
}

std::string current_module_path() { return call_detail::path(); }

std::string module_path_of(const c10::Error& error) {
  for (const std::string& line : error.context()) {
    if (line.starts_with(kInModule)) return line.substr(kInModule.size());
  }
  return "";
}

}  // namespace lft
