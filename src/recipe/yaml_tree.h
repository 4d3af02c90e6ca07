// The YAML subset of recipes as a tree with line numbers. Rejects ambiguous constructs; independent
// of recipe fields.
#pragma once
#include <string>
#include <vector>

namespace lft::recipe {

struct YamlEntry;
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap } kind = Kind::kNull;
  int line = 0;         // from 1
  std::string place;    // "line 4", or "--set lora.rank=8"
  std::string text;     // for a scalar
  bool quoted = false;  // the scalar is text, independent of its form
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;  // in file order, duplicates kept
};
struct YamlEntry {
  std::string key;
  int line = 0;
  std::string place;
  YamlNode value;
};

/// One document of plain, quoted and block scalars, lists and maps. kUsage at the first of: anchor,
/// alias, tag, merge key, directive, second document, key that is not a plain name, more than 4
/// levels, NUL, byte-order mark, invalid UTF-8, more than 64 KiB, bad syntax.
YamlNode parse_yaml(const std::string& text, const std::string& where);

}  // namespace lft::recipe
