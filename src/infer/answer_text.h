// An answer's text while its tokens come. What may still change waits: a run of byte tokens becomes
// text as a whole or not at all, and what may begin a stop text is not said yet.
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
  /// What is certain by now and was not given before.
  std::string add(int64_t id);
  /// Whether a stop text is there: the answer is over, and what else comes is no part of it.
  bool ended() const { return ended_; }
  /// The rest, where no more tokens come.
  std::string finish();
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }

 private:
  /// The part of `text` that was not given.
  std::string give(const std::string& text);

  const text::Tokenizer& tokenizer_;
  const StopStrings stop_;
  std::vector<int64_t> ids_;
  size_t given_ = 0;
  bool ended_ = false;
};

}  // namespace lft::infer
