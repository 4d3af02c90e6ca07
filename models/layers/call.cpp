#include "models/layers/call.h"

#include <utility>

namespace lft {
namespace {

thread_local ModulePath parts;
thread_local CallObserver* current_observer = nullptr;

}  // namespace

ObserveCalls::ObserveCalls(CallObserver& observer) : previous_(current_observer) { current_observer = &observer; }
ObserveCalls::~ObserveCalls() { current_observer = previous_; }

namespace call_detail {

CallObserver* observer() { return current_observer; }
PathScope::PathScope(const char* name, int64_t index) { parts.push_back({name, index}); }
PathScope::~PathScope() { parts.pop_back(); }

std::string path() {
  std::string result;
  for (const PathPart& part : parts) {
    if (!result.empty()) result += '.';
    result += part.name;
    if (part.index >= 0) result += '.' + std::to_string(part.index);
  }
  return result;
}

}  // namespace call_detail

ModulePath module_path() { return parts; }
RestoreModulePath::RestoreModulePath(ModulePath path) : previous_(std::exchange(parts, std::move(path))) {}
RestoreModulePath::~RestoreModulePath() { parts = std::move(previous_); }

std::string current_module_path() { return call_detail::path(); }

}  // namespace lft
