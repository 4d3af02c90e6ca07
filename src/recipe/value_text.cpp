#include "src/recipe/value_text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace lft::recipe {

/// The shortest form that reads back to the same double, with a point, so that every YAML reader
/// parses it as a number.
std::string value_text(double value) {
  char buffer[32];
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = text.find('e');
  return exponent == std::string::npos ? text + ".0" : text.insert(exponent, ".0");
}

/// Unquoted if every YAML reader parses it as text, else in double quotes.
std::string value_text(const std::string& text) {
  static const char* const kWords[] = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool word = std::find(std::begin(kWords), std::end(kWords), lower) != std::end(kWords);
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::strchr("_./-", c) != nullptr;
  };
  const bool path = text.find('/') != std::string::npos;
  const bool first = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) ||
                                       (path && (text[0] == '/' || text[0] == '.')));
  if (first && !word && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string value_text(int64_t value) { return std::to_string(value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const Shuffle& value) {
  return value.blocks ? "blocks" : value_text(value.rows);
}
std::string value_text(const TrainData& value) {
  if (value.list.empty()) return value_text(value.path);
  std::string text;
  for (const Source& source : value.list) {
    text += (text.empty() ? "{path: " : ", {path: ") + value_text(source.path);
    if (!source.image_root.empty()) text += ", image_root: " + value_text(source.image_root);
    text += ", weight: " + value_text(source.weight) + "}";
  }
  return "[" + text + "]";
}
std::string value_text(const Mapping& value) { return value.json.empty() ? "{}" : value.json; }
std::string value_text(const std::array<double, 2>& value) {
  return "[" + value_text(value[0]) + ", " + value_text(value[1]) + "]";
}
std::string value_text(const std::vector<std::string>& value) {
  std::string text;
  for (const std::string& item : value) text += (text.empty() ? "" : ", ") + value_text(item);
  return "[" + text + "]";
}

}  // namespace lft::recipe
