// Texts that end an answer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace lft::infer {

/// An answer ends with the id that completes one of the texts, as under transformers'
/// StopStringCriteria; what is shown of it ends before the text. Looks at answers alone, not at
/// their prompts.
class StopStrings {
 public:
  /// `tokenizer` outlives it. Empty texts never end anything.
  StopStrings(const text::Tokenizer& tokenizer, std::vector<std::string> texts);
  bool empty() const { return texts_.empty(); }
  /// Whether one of them is in an answer, or in its text.
  bool ends(const std::vector<int64_t>& answer) const;
  bool are_in(const std::string& answer) const;
  std::string cut(const std::string& answer) const;
  /// What of a growing answer is shown whatever comes: not what may begin a text.
  std::string settled(const std::string& answer) const;

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<std::string> texts_;
};

}  // namespace lft::infer
