// The keys of rank_pattern and alpha_pattern of PEFT, and its layers_pattern, matched against
// module names.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/text/pipeline/regex.h"

namespace lft::hf {

/// Each key is a regular expression for the whole name, or for its end after a dot.
class PeftPatterns {
 public:
  /// `keys` in the order in which they are tried. Throws kInput, naming `where`, for an invalid
  /// expression.
  PeftPatterns(const std::vector<std::string>& keys, const std::string& where);
  /// The index of the first key that matches the first spelling, or else the next spelling.
  std::optional<size_t> first_of(const std::vector<std::string>& spellings) const;

 private:
  struct Key {
    std::string text;
    std::optional<text::Regex> regex;  // empty: a plain name
    bool takes(const std::string& name) const;
  };
  std::vector<Key> keys_;
};

}  // namespace lft::hf
