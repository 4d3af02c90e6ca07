// A field's value in recipe form, which reads back to the same value.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "src/recipe/recipe_fields.h"

namespace lft::recipe {

std::string value_text(int64_t value);
std::string value_text(double value);
std::string value_text(bool value);
std::string value_text(const Shuffle& value);
std::string value_text(const Mapping& value);
std::string value_text(const std::string& value);
std::string value_text(const TrainData& value);
std::string value_text(const std::array<double, 2>& value);
std::string value_text(const std::vector<std::string>& value);
template <class E>
std::string value_text(const Choice<E>& value) {
  return value_text(value.word());
}
template <class T>
std::string value_text(const ByPattern<T>& value) {
  std::string text;
  for (const auto& [pattern, item] : value)
    text += (text.empty() ? "" : ", ") + value_text(pattern) + ": " + value_text(item);
  return "{" + text + "}";
}

/// Whether a nullable field was not given.
inline bool is_absent(const std::string& value) { return value.empty(); }
inline bool is_absent(double value) { return value < 0; }
template <class T>
bool is_absent(const T&) {
  return false;
}

/// "null" if the field is optional and not given; the word for 0 if there is one.
template <class T>
std::string value_text(const T& value, const FieldRule& rule) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (value == 0 && rule.zero != nullptr) return rule.zero;
  }
  return rule.nullable && is_absent(value) ? "null" : value_text(value);
}

}  // namespace lft::recipe
