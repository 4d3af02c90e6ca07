// An answer's text while its tokens come. What may still change waits: a run of byte tokens becomes
// text as a whole or not at all, and what may begin a stop text is not said yet.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace lft::infer {

class AnswerText {
 public:
  /// `stops`: the answer ends before the first of them that comes. `tokenizer` must outlive it.
  explicit AnswerText(const text::Tokenizer& tokenizer, std::vector<std::string> stops = {})
      : tokenizer_(tokenizer), stops_(std::move(stops)) {}
  /// What is certain by now and was not given before. Nothing after a stop text.
  std::string add(int64_t id);
  /// The rest, where no more tokens come.
  std::string finish();
  bool stopped() const { return stopped_; }
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }

 private:
  /// The part of `text` up to `end` that was not given.
  std::string give(const std::string& text, size_t end);
  /// Bytes of `text` before a stop text, and whether one came; else before what may begin one.
  size_t before_stop(const std::string& text, bool whole);

  const text::Tokenizer& tokenizer_;
  const std::vector<std::string> stops_;
  std::vector<int64_t> ids_;
  size_t given_ = 0;
  bool stopped_ = false;
};

}  // namespace lft::infer
