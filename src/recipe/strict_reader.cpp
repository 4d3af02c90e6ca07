#include "src/recipe/strict_reader.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/recipe/foreign_names.h"

namespace lft::recipe {
namespace {

constexpr double kMostWeight = 1e6;  // of a source of data.train

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}  // npos + 1 is 0
std::string parent(const std::string& path) {
  return path.substr(0, path.size() - last_part(path).size());
}

bool starts_like_octal(const std::string& text) {
  const size_t at = !text.empty() && text[0] == '-' ? 1 : 0;
  return text.size() > at + 1 && text[at] == '0' && text[at + 1] >= '0' && text[at + 1] <= '9';
}

template <class T>
bool parse_whole_text(const std::string& text, T* out) {
  if (starts_like_octal(text)) return false;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, *out);
  return code == std::errc{} && stop == end;
}

bool in_range(double value, const FieldRule& rule) {
  return (rule.low_open ? value > rule.low : value >= rule.low) &&
         (rule.high_open ? value < rule.high : value <= rule.high);
}

bool is_choice(const std::string& value, const FieldRule& rule) {
  return rule.choices.empty() ||
         std::find(rule.choices.begin(), rule.choices.end(), value) != rule.choices.end();
}

std::string number_text(double value, bool whole) {
  char buffer[32];
  if (whole && value >= 0x1p63) return std::to_string(INT64_MAX);
  if (whole) return std::to_string(static_cast<int64_t>(value));
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

std::string map_text(const YamlNode& map);

std::string found_text(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "empty";
    case YamlNode::Kind::kList: {
      std::vector<std::string> items;
      for (const YamlNode& item : node.items)
        items.push_back(item.kind == YamlNode::Kind::kMap ? map_text(item) : found_text(item));
      return "[" + join(items, ", ", 8) + "]";
    }
    case YamlNode::Kind::kMap:
      return "a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  if (node.text.empty()) return "empty text";
  return node.quoted ? "the text " + quote_text(node.text, 60) : escape_text(node.text, 60);
}

/// For an element of a list.
std::string map_text(const YamlNode& map) {
  std::vector<std::string> parts;
  for (const YamlEntry& entry : map.entries)
    parts.push_back(escape_text(entry.key, 40) + ": " + found_text(entry.value));
  return "{" + join(parts, ", ", 8) + "}";
}

/// The value according to YAML; nothing if a key is repeated.
std::optional<nlohmann::ordered_json> json_of(const YamlNode& node) {
  nlohmann::ordered_json json;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return json;
    case YamlNode::Kind::kList:
      json = nlohmann::ordered_json::array();
      for (const YamlNode& item : node.items) {
        const auto value = json_of(item);
        if (!value) return std::nullopt;
        json.push_back(*value);
      }
      return json;
    case YamlNode::Kind::kMap:
      json = nlohmann::ordered_json::object();
      for (const YamlEntry& entry : node.entries) {
        const auto value = json_of(entry.value);
        if (!value || json.contains(entry.key)) return std::nullopt;
        json[entry.key] = *value;
      }
      return json;
    case YamlNode::Kind::kScalar:
      break;
  }
  int64_t whole = 0;
  double number = 0;
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (parse_plain_int(node.text, &whole)) return whole;
  if (parse_plain_double(node.text, &number)) return number;
  if (is_plain_non_text(node.text)) return std::nullopt;
  return node.text;
}

}  // namespace

FieldNames field_names() {
  FieldNames names;
  const Recipe recipe;
  visit(names, recipe);
  return names;
}

std::string unknown_field(const std::string& path, const FieldNames& names) {
  if (const std::string ours = lft_name(path); !ours.empty())
    return escape_text(path, 80) + " is not a recipe field (in lft: " + ours + ")";
  std::vector<std::string> all = names.fields;
  all.insert(all.end(), names.sections.begin(), names.sections.end());
  const std::string key = last_part(path);
  std::string nearest, siblings;
  int best = std::max(2, static_cast<int>(key.size()) / 2) + 1;
  for (const std::string& name : all) {
    const bool same_section = parent(name) == parent(path);
    if (same_section) siblings += (siblings.empty() ? "" : ", ") + last_part(name);
    if (key.size() > 64) continue;
    const int distance = edit_distance(key, last_part(name)) + (same_section ? 0 : 1);
    if (distance >= best) continue;
    best = distance;
    nearest = name;
  }
  const std::string hint = !nearest.empty() ? "nearest: " + nearest : "known here: " + siblings;
  return escape_text(path, 80) + " is not a recipe field (" + hint + ")";
}

bool parse_plain_int(const std::string& text, int64_t* out) { return parse_whole_text(text, out); }

bool parse_plain_double(const std::string& text, double* out) {
  return parse_whole_text(text, out) && std::isfinite(*out);
}

bool is_plain_non_text(const std::string& text) {
  static const char* const kWords[] = {"true",  "True", "TRUE", "false", "False",
                                       "FALSE", "null", "Null", "NULL",  "~"};
  if (text.empty() || std::find(std::begin(kWords), std::end(kWords), text) != std::end(kWords))
    return true;
  std::string digits = text;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const size_t sign = digits.empty() || (digits[0] != '+' && digits[0] != '-') ? 0 : 1;
  const std::string body = digits.substr(sign);
  if (body == ".inf" || body == ".Inf" || body == ".INF" || body == ".nan" || body == ".NaN" ||
      body == ".NAN")
    return true;
  if (body.empty() || !(body[0] == '.' || (body[0] >= '0' && body[0] <= '9'))) return false;
  if (body.size() > 2 && body[0] == '0' && (body[1] == 'x' || body[1] == 'o')) {
    return body.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string::npos;
  }
  double value = 0;
  const char* end = body.data() + body.size();
  return std::from_chars(body.data(), end, value).ptr == end;
}

std::string rule_text(const FieldRule& rule, bool whole) {
  if (!rule.choices.empty()) return "one of " + join(rule.choices);
  if (std::isinf(rule.low) && std::isinf(rule.high)) return "";
  return std::string("in ") + (rule.low_open ? "(" : "[") + number_text(rule.low, whole) + ", " +
         number_text(rule.high, whole) + (rule.high_open ? ")" : "]") +
         (rule.zero == nullptr ? "" : std::string(", or ") + rule.zero);
}

StrictReader::StrictReader(const YamlNode& root) : names_(field_names()) {
  const bool map = root.kind == YamlNode::Kind::kMap;
  const bool misplaced = !map && root.kind != YamlNode::Kind::kNull;
  if (misplaced)
    add_problem(root.line, root.place,
                "a recipe is a mapping of keys to values, found " + found_text(root));
  frames_.push_back({map ? &root : nullptr, misplaced, "", 0, "", {}});
}

const YamlEntry* StrictReader::find(const std::string& key) {
  Frame& frame = frames_.back();
  frame.known.push_back(key);
  if (frame.map == nullptr) return nullptr;
  const YamlEntry* first = nullptr;
  for (const YamlEntry& entry : frame.map->entries) {
    if (entry.key != key) continue;
    if (first != nullptr)
      add_problem(entry.line, entry.place,
                  frame.prefix + key + " is given twice (first on " + first->place + ")");
    if (first == nullptr) first = &entry;
  }
  return first;
}

const YamlEntry* StrictReader::take(const char* key, const FieldRule& rule, const char* help) {
  const Frame& frame = frames_.back();
  const std::string path = frame.prefix + key;
  const YamlEntry* entry = find(key);
  if (entry == nullptr) {
    if (rule.required && !frame.misplaced)
      add_problem(frame.line, frame.place, path + " is missing (" + help + ")");
    return nullptr;
  }
  given_[path] = entry;
  return rule.nullable && entry->value.kind == YamlNode::Kind::kNull ? nullptr : entry;
}

void StrictReader::enter(const char* key) {
  const std::string path = frames_.back().prefix + key;
  const YamlEntry* entry = find(key);
  const bool map = entry != nullptr && entry->value.kind == YamlNode::Kind::kMap;
  const bool misplaced = frames_.back().misplaced || (entry != nullptr && !map);
  if (entry != nullptr && !map) mismatch(*entry, "a mapping of keys to values");
  if (entry == nullptr) {
    frames_.push_back({nullptr, misplaced, path + ".", 0, "", {}});
  } else {
    frames_.push_back(
        {map ? &entry->value : nullptr, misplaced, path + ".", entry->line, entry->place, {}});
  }
}

void StrictReader::leave() {
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  if (frame.map == nullptr) return;
  for (const YamlEntry& entry : frame.map->entries) {
    const bool known =
        std::find(frame.known.begin(), frame.known.end(), entry.key) != frame.known.end();
    if (!known)
      add_problem(entry.line, entry.place, unknown_field(frame.prefix + entry.key, names_));
  }
}

std::vector<std::string> StrictReader::finish() {
  leave();
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
  std::vector<std::string> lines;
  for (const Problem& problem : problems_) lines.push_back(problem.text);
  return lines;
}

void StrictReader::problem_at(const std::string& path, const std::string& text) {
  const auto given = given_.find(path);
  if (given == given_.end()) return add_problem(0, "", path + " " + text);
  add_problem(given->second->line, given->second->place, path + " " + text);
}

void StrictReader::mismatch(const YamlEntry& entry, const std::string& expected) {
  const YamlNode& node = entry.value;
  add_problem(
      node.line, node.place,
      frames_.back().prefix + entry.key + " is " + found_text(node) + ", expected " + expected);
}

void StrictReader::add_problem(int line, const std::string& place, const std::string& text) {
  problems_.push_back({line, place.empty() ? text : place + ": " + text});
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, int64_t* out) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return false;
  if (rule.zero != nullptr && node.text == rule.zero) {
    *out = 0;
    return true;
  }
  return parse_plain_int(node.text, out) && in_range(static_cast<double>(*out), rule);
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, double* out) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return false;
  return parse_plain_double(node.text, out) && in_range(*out, rule);
}

bool StrictReader::parse(const YamlNode& node, const FieldRule&, bool* out) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return false;
  *out = node.text == "true";
  return *out || node.text == "false";
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, Shuffle* out) {
  out->blocks = node.kind == YamlNode::Kind::kScalar && node.text == "blocks";
  return out->blocks || parse(node, rule, &out->rows);
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, std::string* out) {
  if (node.kind != YamlNode::Kind::kScalar || (!node.quoted && is_plain_non_text(node.text)))
    return false;
  if (rule.not_empty && node.text.empty()) return false;
  *out = node.text;
  const bool control =
      std::any_of(out->begin(), out->end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return !control && is_choice(*out, rule);
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, TrainData* out) {
  *out = {};
  if (node.kind != YamlNode::Kind::kList) return parse(node, rule, &out->path);
  for (const YamlNode& item : node.items) {
    Source& source = out->list.emplace_back();
    std::vector<std::string> given;
    for (const YamlEntry& entry : item.entries) {
      if (std::find(given.begin(), given.end(), entry.key) != given.end()) return false;
      given.push_back(entry.key);
      const bool good =
          entry.key == "path" || entry.key == "image_root"
              ? parse(entry.value, {.not_empty = true},
                      entry.key == "path" ? &source.path : &source.image_root)
              : entry.key == "weight" &&
                    parse(entry.value, {.low = 0, .high = kMostWeight, .low_open = true},
                          &source.weight);
      if (!good) return false;
    }
    if (source.path.empty()) return false;
  }
  return !out->list.empty();
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule,
                         std::vector<std::string>* out) {
  if (node.kind != YamlNode::Kind::kList || (rule.not_empty && node.items.empty())) return false;
  out->clear();
  for (const YamlNode& item : node.items) {
    if (!parse(item, rule, &out->emplace_back()) || out->back().empty()) return false;
  }
  return true;
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, std::array<double, 2>* out) {
  if (node.kind != YamlNode::Kind::kList || node.items.size() != out->size()) return false;
  return parse(node.items[0], rule, &(*out)[0]) && parse(node.items[1], rule, &(*out)[1]);
}

bool StrictReader::parse(const YamlNode& node, const FieldRule&, Mapping* out) {
  out->json.clear();
  if (node.kind != YamlNode::Kind::kMap) return false;
  if (node.entries.empty()) return true;
  const std::optional<nlohmann::ordered_json> value = json_of(node);
  if (value) out->json = value->dump();
  return value.has_value();
}

bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, ByPattern<std::string>* out) {
  if (node.kind != YamlNode::Kind::kMap) return false;
  out->clear();
  for (const YamlEntry& entry : node.entries) {
    const auto is_given = [&](const auto& each) { return each.first == entry.key; };
    if (std::any_of(out->begin(), out->end(), is_given) || !is_choice(entry.key, rule))
      return false;
    out->emplace_back(entry.key, "");
    if (!parse(entry.value, {.not_empty = true}, &out->back().second)) return false;
  }
  return true;
}

std::string StrictReader::expected(int64_t, const FieldRule& rule) {
  return "a whole number " + rule_text(rule, true);
}
std::string StrictReader::expected(double, const FieldRule& rule) {
  return "a number " + rule_text(rule, false);
}
std::string StrictReader::expected(bool, const FieldRule&) { return "true or false"; }
std::string StrictReader::expected(const Shuffle&, const FieldRule&) {
  return "true, false or blocks";
}
std::string StrictReader::expected(const std::string&, const FieldRule& rule) {
  return rule.choices.empty()
             ? "text on one line (in quotes where it looks like a number, true, false or null)"
             : rule_text(rule, false);
}
std::string StrictReader::expected(const TrainData&, const FieldRule& rule) {
  return expected(std::string(), rule) +
         ", or a list of {path: text, image_root: text, weight: a number in (0, " +
         number_text(kMostWeight, true) + "]}";
}
std::string StrictReader::expected(const std::vector<std::string>&, const FieldRule& rule) {
  return rule.choices.empty() ? "a list of text, as [a, b]"
                              : "a list, as [a, b], each " + rule_text(rule, false);
}
std::string StrictReader::expected(const std::array<double, 2>&, const FieldRule& rule) {
  return "two numbers, as [a, b], each " + rule_text(rule, false);
}

std::string StrictReader::expected(const Mapping&, const FieldRule&) {
  return "a mapping of names, each once, to values";
}

std::string StrictReader::expected(const ByPattern<int64_t>&, const FieldRule& rule) {
  return "a mapping of patterns, each once, to values: " + expected(int64_t{}, rule);
}

std::string StrictReader::expected(const ByPattern<double>&, const FieldRule& rule) {
  return "a mapping of patterns, each once, to values: " + expected(double{}, rule);
}

std::string StrictReader::expected(const ByPattern<std::string>&, const FieldRule& rule) {
  return "a mapping of names, each once and " + rule_text(rule, false) + ", to texts";
}

}  // namespace lft::recipe
