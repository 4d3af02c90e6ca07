// The text of an answer as its tokens arrive: by hand, with a tokenizer of bytes and words.
#include <gtest/gtest.h>

#include "src/infer/answer_text.h"
#include "support/llava.h"

namespace lft::answer_text_test {
namespace {

/// Ids below 256 are byte tokens, 300 is " am", 301 "The", 302 a special token; others have none.
/// As in SentencePiece decoders, bytes that form no whole character become U+FFFD.
class Words : public text::Tokenizer {
 public:
  std::vector<text::Token> encode(std::string_view) const override { return {}; }
  std::string decode(const std::vector<int64_t>& ids, bool) const override {
    std::string text, run;
    const auto close = [&] {
      text += run == "\xC3\xA9" ? run : run.empty() ? "" : run == "!" ? "!" : "\xEF\xBF\xBD";
      run.clear();
    };
    for (const int64_t id : ids) {
      if (id < 256) {
        run += static_cast<char>(id);
      } else if (id == 300 || id == 301) {
        close();
        text += id == 300 ? " am" : "The";
      }
    }
    close();
    return text;
  }
  bool is_special(int64_t id) const override { return id == 302; }
  int64_t vocab_size() const override { return 303; }
  int64_t id_of(const std::string&) const override { return -1; }
  std::string token_of(int64_t id) const override {
    if (id < 256) return "<0x41>";
    return id == 300 ? " am" : id == 301 ? "The" : id == 302 ? "<s>" : "";
  }
};

std::vector<std::string> pieces(infer::AnswerText& text, const std::vector<int64_t>& ids) {
  std::vector<std::string> out;
  for (const int64_t id : ids) out.push_back(text.add(id));
  out.push_back(text.finish());
  return out;
}

TEST(AnswerText, ARunOfByteTokensIsGivenWhole) {
  const Words words;
  infer::AnswerText text(words, infer::StopStrings(words, {}));
  EXPECT_EQ(pieces(text, {301, 0xC3, 302, 0xA9, 300}),
            (std::vector<std::string>{"The", "", "", "", "\xC3\xA9 am", ""}));
  EXPECT_EQ(text.tokens(), 5);
}

TEST(AnswerText, BytesThatStayCutAreGivenAtTheEnd) {
  const Words words;
  infer::AnswerText text(words, infer::StopStrings(words, {}));
  EXPECT_EQ(pieces(text, {301, 0xC3}), (std::vector<std::string>{"The", "", "\xEF\xBF\xBD"}));
}

TEST(AnswerText, WhatMayBeginAStopTextWaits) {
  const Words words;
  infer::AnswerText text(words, infer::StopStrings(words, {"e amT", "never"}));
  EXPECT_EQ(pieces(text, {301, 300, 300}), (std::vector<std::string>{"Th", "", "e am am", ""}));
}

TEST(AnswerText, NothingIsGivenAfterAStopText) {
  const Words words;
  infer::AnswerText text(words, infer::StopStrings(words, {"e amT", "m am"}));
  EXPECT_EQ(pieces(text, {301, 300, 301, 300}), (std::vector<std::string>{"Th", "", "", "", ""}));
}

TEST(AnswerText, AnAnswerHasEndedWithTheIdThatCompletesAStopText) {
  const Words words;
  const auto ended = [&](const std::vector<std::string>& stop, const std::vector<int64_t>& ids) {
    infer::AnswerText text(words, infer::StopStrings(words, stop));
    std::vector<bool> out;
    for (const int64_t id : ids) {
      text.add(id);
      out.push_back(text.ended());
    }
    EXPECT_EQ(infer::StopStrings(words, stop).ends(ids), text.ended());
    return out;
  };
  EXPECT_EQ(ended({"e amT", "never"}, {301, 300, 301, 300}),
            (std::vector<bool>{false, false, true, true}));
  EXPECT_EQ(ended({"e!"}, {301, '!'}), (std::vector<bool>{false, true}));  // a byte ends it, too
  EXPECT_EQ(ended({"e\xC3\xA9"}, {301, 0xC3, 302, 0xA9}),
            (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(ended({}, {301, 300}), (std::vector<bool>{false, false}));
}

TEST(AnswerText, TheFirstOfSeveralStopTextsCounts) {
  const Words words;
  infer::AnswerText text(words, infer::StopStrings(words, {"am", "Th"}));
  EXPECT_EQ(pieces(text, {301, 300}), (std::vector<std::string>{"", "", ""}));
}

}  // namespace
}  // namespace lft::answer_text_test
