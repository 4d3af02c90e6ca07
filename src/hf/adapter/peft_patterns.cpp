#include "src/hf/adapter/peft_patterns.h"

#include <algorithm>

namespace lft::hf {

PeftPatterns::PeftPatterns(const std::vector<std::string>& keys, const std::string& where) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  for (const std::string& key : keys) {
    keys_.push_back({.text = key, .regex = {}});
    if (!std::ranges::all_of(key, plain))
      keys_.back().regex.emplace("^(?:.*\\.)?(?:" + key + ")$", where);
  }
}

bool PeftPatterns::Key::takes(const std::string& name) const {
  if (regex) return !regex->find_all(name).empty();
  return name == text || name.ends_with("." + text);
}

std::optional<size_t> PeftPatterns::first_of(const std::vector<std::string>& spellings) const {
  for (const std::string& name : spellings) {
    const auto found = std::ranges::find_if(keys_, [&](const Key& key) { return key.takes(name); });
    if (found != keys_.end()) return static_cast<size_t>(found - keys_.begin());
  }
  return std::nullopt;
}

}  // namespace lft::hf
