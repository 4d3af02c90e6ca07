#include "src/serve/reply.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/text/pipeline/aligned.h"

namespace lft::serve {
namespace {

/// The characters that begin in these bytes of UTF-8.
int64_t characters(const std::string& bytes) {
  return std::ranges::count_if(bytes, [](char byte) { return (byte & 0xC0) != 0x80; });
}

/// The text of a token; a part of a character as OpenAI writes it, "bytes:\\xe2\\x9c".
std::string token_name(const std::string& bytes) {
  if (text::to_valid_utf8(bytes) == bytes) return bytes;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    name += std::string("\\x") + kDigits[value / 16] + kDigits[value % 16];
  }
  return name;
}

}  // namespace

Reply::Reply(const text::Tokenizer& tokenizer, const infer::StopStrings& stop, size_t answers,
             ReplyOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), open_(answers) {
  for (size_t i = 0; i < answers; ++i) {
    const std::string begin = i < options_.begins.size() ? options_.begins[i] : "";
    all_.push_back(
        {.text = infer::AnswerText(tokenizer, stop), .begin = begin, .offset = characters(begin)});
  }
}

ScoredText Reply::named(int64_t id, double logprob, bool first) const {
  const std::string bytes = tokenizer_.bytes_of(id, first);
  ScoredText token{.text = token_name(bytes), .bytes = bytes, .logprob = logprob};
  if (tokenizer_.is_special(id)) token.bytes.reset();
  return token;
}

void Reply::score(Answer& answer, const NewToken& token, std::vector<ScoredToken>& scores) const {
  const bool first = !answer.begun;
  ScoredToken scored{.token = named(token.id, token.scores.logprob, first),
                     .offset = answer.offset};
  for (const auto& [id, logprob] : token.scores.top)
    scored.top.push_back(named(id, logprob, first));
  if (scored.token.bytes) {
    answer.begun = true;
    answer.offset += characters(*scored.token.bytes);
  }
  scores.push_back(std::move(scored));
}

Choice Reply::part_of(size_t index, const Answers::Update& update) {
  Answer& answer = all_[index];
  Choice part{.index = index, .text = std::exchange(answer.begin, "")};
  if (options_.scores) part.scores.emplace();
  for (const NewToken& token : update.tokens) {
    if (answer.text.ended()) break;  // the engine has no text and may have sampled more
    part.text += answer.text.add(token.id);
    if (part.scores) score(answer, token, *part.scores);
  }
  if (!answer.text.ended() && !update.ended) return part;
  if (answer.text.ended()) answers_->cancel(index);
  part.finish = !answer.text.ended() && update.by_limit ? "length" : "stop";
  answer.end_tokens = !answer.text.ended() && update.by_end_token ? 1 : 0;
  part.text += answer.text.finish();
  answer.ended = true;
  --open_;
  return part;
}

Reply::News Reply::next() {
  const std::vector<Answers::Update> updates = answers_->wait(std::chrono::milliseconds(250));
  News news;
  for (size_t index = 0; index < updates.size(); ++index) {
    if (all_[index].ended) continue;
    Choice part = part_of(index, updates[index]);
    if (updates[index].error && !all_[index].text.ended()) news.error = updates[index].error;
    if (!part.text.empty() || !part.finish.empty() || (part.scores && !part.scores->empty()))
      news.parts.push_back(std::move(part));
  }
  if (!news.error && open_ > 0 && std::chrono::steady_clock::now() > options_.deadline)
    news.error = Error(ErrorKind::kResource, "the answer took too long");
  if (news.error) cancel();
  return news;
}

Usage Reply::usage() const {
  Usage usage{.prompt_tokens = options_.prompt_tokens};
  for (const Answer& answer : all_)
    usage.completion_tokens += answer.text.tokens() + answer.end_tokens;
  return usage;
}

}  // namespace lft::serve
