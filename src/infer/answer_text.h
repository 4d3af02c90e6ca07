// The text of an answer while it is generated. Text that may still change is withheld: a run of
// byte tokens is decoded as a whole, and the beginning of a stop text is not returned yet.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/infer/stop_strings.h"
#include "src/text/tokenizer.h"

namespace lft::infer {

class AnswerText {
 public:
  /// `tokenizer` must outlive it.
  AnswerText(const text::Tokenizer& tokenizer, StopStrings stop)
      : tokenizer_(tokenizer), stop_(std::move(stop)) {}
  /// The new text that cannot change any more.
  std::string add(int64_t id);
  /// Whether a stop text has occurred: the answer has ended, and further tokens are not part of it.
  bool ended() const { return ended_; }
  /// The remaining text, after the last token.
  std::string finish();
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }

 private:
  /// The part of `text` that has not been returned.
  std::string give(const std::string& text);

  const text::Tokenizer& tokenizer_;
  const StopStrings stop_;
  std::vector<int64_t> ids_;
  size_t given_ = 0;
  bool ended_ = false;
};

}  // namespace lft::infer
