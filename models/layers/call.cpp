#include "models/layers/call.h"

namespace lft {
namespace {

struct PathPart {
  const char* name;
  int64_t index;
};
thread_local std::vector<PathPart> parts;
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

std::string current_module_path() { return call_detail::path(); }

}  // namespace lft
