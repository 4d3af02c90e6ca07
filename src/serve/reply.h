// The answers of a request as text, while they are drawn.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/infer/answer_text.h"
#include "src/serve/answer.h"
#include "src/serve/reply_json.h"
#include "src/text/tokenizer.h"

namespace lft::serve {

struct ReplyOptions {
  ReplyNames names;
  int64_t prompt_tokens = 0;
  bool scores = false, include_usage = false;
  std::chrono::steady_clock::time_point deadline;
  std::vector<std::string> begins = {};  // of each answer: the prompt, with `echo`
};

class Reply {
 public:
  /// `tokenizer` must outlive it.
  Reply(const text::Tokenizer& tokenizer, const infer::StopStrings& stop, size_t answers,
        ReplyOptions options);
  void follow(std::shared_ptr<Answers> answers) { answers_ = std::move(answers); }
  void cancel() { answers_->cancel(); }

  struct News {
    std::vector<Choice> parts = {};   // new text of answers, in order; `finish` in the last of each
    std::optional<Error> error = {};  // instead: the request has failed
  };
  /// Waits for news, but not for long.
  News next();
  bool ended() const { return open_ == 0; }
  size_t answers() const { return all_.size(); }
  Usage usage() const;
  const ReplyOptions& options() const { return options_; }

 private:
  struct Answer {
    infer::AnswerText text;
    std::string begin = {};  // what is sent before the first text
    bool begun = false;      // a token that is not special was scored
    int64_t end_tokens = 0;  // 1 if it has ended with an end token
    int64_t offset = 0;      // characters of its text before the next token
    bool ended = false;
  };
  Choice part_of(size_t index, const Answers::Update& update);
  void score(Answer& answer, const NewToken& token, std::vector<ScoredToken>& scores) const;
  ScoredText named(int64_t id, double logprob, bool first) const;

  const text::Tokenizer& tokenizer_;
  const ReplyOptions options_;
  std::vector<Answer> all_;
  size_t open_;
  std::shared_ptr<Answers> answers_;
};

}  // namespace lft::serve
