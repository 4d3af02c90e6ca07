// Visitor that fills a recipe from a YAML tree and collects every problem instead of stopping at
// the first.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/recipe/recipe_fields.h"
#include "src/recipe/yaml_tree.h"

namespace lft::recipe {

/// Visitor: the dotted paths of all fields and of all sections.
struct FieldNames : SectionPath {
  std::vector<std::string> fields, sections;

  template <class T>
  void field(const char* key, T&, const FieldRule&, const char*) {
    fields.push_back(prefix + key);
  }
  template <class Body>
  void section(const char* key, Body body) {
    sections.push_back(prefix + key);
    SectionPath::section(key, body);
  }
};
FieldNames field_names();
/// "lora.rnk is not a recipe field (nearest: lora.rank)"; for another tool's name "(in lft:
/// lora.rank)"; without a near name, the names in its section.
std::string unknown_field(const std::string& path, const FieldNames& names);

/// Parses numbers in recipe form: plain decimal, no leading zeros, finite. False otherwise.
bool parse_plain_int(const std::string& text, int64_t* out);
bool parse_plain_double(const std::string& text, double* out);
/// Whether YAML parses the text as a number, a
/// boolean or null, so that it needs quotes.
bool is_plain_non_text(const std::string& text);
/// "in [1, 65536]", "one of pad, crop"; empty if any value is allowed.
std::string rule_text(const FieldRule& rule, bool whole);

class StrictReader {
 public:
  explicit StrictReader(const YamlNode& root);

  template <class T>
  void field(const char* key, T& value, const FieldRule& rule, const char* help) {
    const YamlEntry* entry = take(key, rule, help);
    if (entry == nullptr) return;
    T read = value;
    if (parse(entry->value, rule, &read)) {
      value = read;
    } else {
      mismatch(*entry, expected(T{}, rule));
    }
  }
  template <class Body>
  void section(const char* key, Body body) {
    enter(key);
    body();
    leave();
  }

  /// After visit(): unknown keys of the top level, then every problem in file order.
  std::vector<std::string> finish();
  /// A problem that involves several fields,
  /// located at `path` if the file contains it.
  void problem_at(const std::string& path, const std::string& text);

 private:
  struct Frame {
    const YamlNode* map;  // null: the section is absent or not a mapping
    bool misplaced;       // present, but not a mapping: its required fields are not reported
    std::string prefix;
    int line;
    std::string place;
    std::vector<std::string> known;
  };
  struct Problem {
    int line;
    std::string text;
  };

  const YamlEntry* take(const char* key, const FieldRule& rule, const char* help);
  const YamlEntry* find(const std::string& key);
  void enter(const char* key);
  void leave();
  void mismatch(const YamlEntry& entry, const std::string& expected);
  void add_problem(int line, const std::string& place, const std::string& text);

  static bool parse(const YamlNode& node, const FieldRule& rule, int64_t* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, double* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, bool* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, Shuffle* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, std::string* out);
  template <class E>
  static bool parse(const YamlNode& node, const FieldRule& rule, Choice<E>* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, TrainData* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, std::vector<std::string>* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, std::array<double, 2>* out);
  static bool parse(const YamlNode& node, const FieldRule& rule, Mapping* out);
  template <class T>
  static bool parse(const YamlNode& node, const FieldRule& rule, ByPattern<T>* out);
  /// The choices are those of the names.
  static bool parse(const YamlNode& node, const FieldRule& rule, ByPattern<std::string>* out);
  static std::string expected(int64_t, const FieldRule& rule);
  static std::string expected(double, const FieldRule& rule);
  static std::string expected(bool, const FieldRule& rule);
  static std::string expected(const Shuffle&, const FieldRule& rule);
  static std::string expected(const std::string&, const FieldRule& rule);
  template <class E>
  static std::string expected(const Choice<E>&, const FieldRule& rule) {
    return rule_text(rule, false);
  }
  static std::string expected(const TrainData&, const FieldRule& rule);
  static std::string expected(const std::vector<std::string>&, const FieldRule& rule);
  static std::string expected(const std::array<double, 2>&, const FieldRule& rule);
  static std::string expected(const Mapping&, const FieldRule& rule);
  static std::string expected(const ByPattern<int64_t>&, const FieldRule& rule);
  static std::string expected(const ByPattern<double>&, const FieldRule& rule);
  static std::string expected(const ByPattern<std::string>&, const FieldRule& rule);

  FieldNames names_;
  std::vector<Frame> frames_;
  std::vector<Problem> problems_;
  std::map<std::string, const YamlEntry*> given_;
};

template <class E>
bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, Choice<E>* out) {
  std::string word;
  const bool known = parse(node, rule, &word);
  if (known) *out = word;
  return known;
}

template <class T>
bool StrictReader::parse(const YamlNode& node, const FieldRule& rule, ByPattern<T>* out) {
  if (node.kind != YamlNode::Kind::kMap) return false;
  out->clear();
  for (const YamlEntry& entry : node.entries) {
    for (const auto& [pattern, value] : *out) {
      if (pattern == entry.key) return false;
    }
    out->emplace_back(entry.key, T{});
    if (entry.key.empty() || !parse(entry.value, rule, &out->back().second)) return false;
  }
  return true;
}

}  // namespace lft::recipe
