// The keys of PEFT's rank_pattern and alpha_pattern: which of them a module's name takes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/text/pipeline/regex.h"

namespace lft::hf {

/// Each key is a regular expression for the whole of a name, or for its end after a dot.
class PeftPatterns {
 public:
  /// In the order in which they are tried. kInput, naming `where`, for a key that is no expression.
  PeftPatterns(const std::vector<std::string>& keys, const std::string& where);
  /// The first key that the first spelling takes; where none does, of the next. "" without one.
  std::string key_of(const std::vector<std::string>& spellings) const;

 private:
  struct Key {
    std::string text;
    std::optional<text::Regex> regex;  // none: a plain name
    bool takes(const std::string& name) const;
  };
  std::vector<Key> keys_;
};

}  // namespace lft::hf
