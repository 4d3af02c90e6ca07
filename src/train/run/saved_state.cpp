#include "src/train/run/saved_state.h"

#include <string_view>

namespace lft::train {

io::Json state_json(const SavedState& state) {
  io::Json json = io::Json::object();
  visit_state(state, [&](const char* name, const auto& member) { json[name] = member; });
  return json;
}

SavedState state_from(const io::Json& json) {
  SavedState state;
  visit_state(state, [&](const char* name, auto& member) {
    if (std::string_view(name) == "norm_watch" && !json.contains(name)) return;
    json.at(name).get_to(member);
  });
  return state;
}

}  // namespace lft::train
