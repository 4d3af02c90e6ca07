// Texts that end an answer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace lft::infer {

/// An answer ends with the id that completes one of the texts, as with transformers'
/// StopStringCriteria; the returned text ends before it. Only answers are searched, not prompts.
class StopStrings {
 public:
  /// `tokenizer` must outlive it. Empty texts are ignored.
  StopStrings(const text::Tokenizer& tokenizer, std::vector<std::string> texts);
  bool empty() const { return texts_.empty(); }
  /// Whether an answer or its text contains one of them.
  bool ends(const std::vector<int64_t>& answer) const;
  bool are_in(const std::string& answer) const;
  std::string cut(const std::string& answer) const;
  /// The part of an unfinished answer that cannot change: without a possible beginning of a stop
  /// text.
  std::string settled(const std::string& answer) const;

 private:
  const text::Tokenizer& tokenizer_;
  std::vector<std::string> texts_;
};

}  // namespace lft::infer
