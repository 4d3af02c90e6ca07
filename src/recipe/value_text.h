// A field's value as a recipe writes it, so that it reads back to the same value.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/recipe/recipe_fields.h"

namespace lft::recipe {

std::string value_text(int64_t value);
std::string value_text(double value);
std::string value_text(bool value);
std::string value_text(const std::string& value);
std::string value_text(const std::array<double, 2>& value);
std::string value_text(const std::vector<std::string>& value);

/// A nullable field that was not given.
inline bool is_absent(const std::string& value) { return value.empty(); }
inline bool is_absent(double value) { return value < 0; }
template <class T>
bool is_absent(const T&) {
  return false;
}

/// "null" where the field may be left out and was.
template <class T>
std::string value_text(const T& value, const FieldRule& rule) {
  return rule.nullable && is_absent(value) ? "null" : value_text(value);
}

}  // namespace lft::recipe
