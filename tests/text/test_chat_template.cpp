// The strings of LLaVA's named templates, their supervised parts, and the resulting
// supervised tokens.
#include <set>

#include "src/text/chat/labels.h"
#include "src/text/chat/named_form.h"
#include "tests/support/expect_error.h"
#include "tests/text/text_test.h"

namespace lft::chat_template_test {
using namespace lft::text;
namespace {

const std::string kSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to "
    "the user's questions. ";
const std::vector<Turn> kTwoTurns = {{"<image>\nWhat is this?", "A cat."}, {"Sure?", "Yes"}};

Rendered render(const std::string& name, const std::vector<Turn>& turns, const std::string& eos,
                bool generate = false, const char* system = nullptr) {
  const std::string text = system == nullptr ? "" : system;
  Conversation talk{messages_of(turns, system == nullptr ? nullptr : &text)};
  // Turns may have an empty last answer, which messages leave out.
  if (!generate && !turns.empty() && turns.back().answer.empty())
    talk.messages.push_back({.role = "assistant", .text = ""});
  // A question is encoded without its answer, as in encode_question().
  if (generate && talk.messages.back().role == "assistant") talk.messages.pop_back();
  return named_form(name, eos, "<image>")->render(talk, generate);
}

std::vector<std::string> supervised(const Rendered& rendered) {
  std::vector<std::string> out;
  for (const auto& span : rendered.supervised)
    out.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  return out;
}

TEST(ChatTemplate, LlavaV1) {
  const Rendered got = render("llava-v1", kTwoTurns, "</s>");
  EXPECT_EQ(
      got.text,
      kSystem + "USER: <image>\nWhat is this? ASSISTANT: A cat.</s>USER: Sure? ASSISTANT: Yes</s>");
  EXPECT_EQ(supervised(got), (std::vector<std::string>{" A cat.</s>", " Yes</s>"}));
}

TEST(ChatTemplate, LlavaHf) {
  const Rendered got = render("llava-hf", kTwoTurns, "</s>");
  EXPECT_EQ(got.text,
            "USER: <image>\nWhat is this? ASSISTANT: A cat.</s> USER: Sure? ASSISTANT: Yes</s>");
  EXPECT_EQ(supervised(got), (std::vector<std::string>{" A cat.</s>", " Yes</s>"}));
}

TEST(ChatTemplate, Plain) {
  const Rendered got = render("plain", kTwoTurns, "</s>");
  EXPECT_EQ(got.text, "<image>\nWhat is this?A cat.</s>Sure?Yes</s>");
  EXPECT_EQ(supervised(got), (std::vector<std::string>{"A cat.</s>", "Yes</s>"}));
}

TEST(ChatTemplate, ToGenerateTheLastTurnStopsBeforeItsAnswer) {
  EXPECT_EQ(render("llava-v1", {{"Q", ""}}, "</s>", true).text, kSystem + "USER: Q ASSISTANT:");
  EXPECT_EQ(render("llava-hf", {{"Q", "left out"}}, "</s>", true).text, "USER: Q ASSISTANT:");
  EXPECT_EQ(render("plain", {{"Q", ""}}, "</s>", true).text, "Q");
  const Rendered second = render("llava-v1", {{"Q", "A"}, {"R", ""}}, "</s>", true);
  EXPECT_EQ(second.text, kSystem + "USER: Q ASSISTANT: A</s>USER: R ASSISTANT:");
  EXPECT_EQ(supervised(second), std::vector<std::string>{" A</s>"});
}

/// A conversation that a client continues after an answer, or begins with one.
TEST(ChatTemplate, MessagesOfAnyOrderAreRendered) {
  const Conversation talk{{{.role = "assistant", .text = "Hello."},
                           {.role = "user", .text = "Q"},
                           {.role = "user", .text = "R"},
                           {.role = "assistant", .text = "A"}}};
  EXPECT_EQ(named_form("llava-hf", "</s>", "<image>")->render(talk, /*generate=*/true).text,
            " ASSISTANT: Hello.</s> USER: Q USER: R ASSISTANT: A</s> ASSISTANT:");
}

TEST(ChatTemplate, ToGenerateIsAPrefixOfTheWhole) {
  for (const std::string& name : named_forms()) {
    const std::string whole = render(name, kTwoTurns, "</s>").text;
    EXPECT_TRUE(whole.starts_with(render(name, kTwoTurns, "</s>", true).text)) << name;
  }
}

TEST(ChatTemplate, OtherEndTokensAndEmptyAnswers) {
  EXPECT_EQ(render("llava-hf", {{"Q", ""}}, "<|eot_id|>").text, "USER: Q ASSISTANT: <|eot_id|>");
  EXPECT_EQ(render("plain", {}, "</s>").text, "");
}

TEST(ChatTemplate, MaskedAnswersAreReadAndNotSupervised) {
  std::vector<Turn> turns = kTwoTurns;
  const std::string whole = render("llava-hf", turns, "</s>").text;
  turns[0].learnt = false;
  const Rendered got = render("llava-hf", turns, "</s>");
  EXPECT_EQ(got.text, whole);
  EXPECT_EQ(supervised(got), std::vector<std::string>{" Yes</s>"});
  ASSERT_EQ(got.masked.size(), 1U);
  EXPECT_EQ(got.text.substr(got.masked[0].begin, got.masked[0].end - got.masked[0].begin),
            " A cat.</s>");
}

TEST(ChatTemplate, ASystemTextTakesThePlaceOfTheTemplatesOwn) {
  EXPECT_EQ(render("llava-v1", {{"Q", "A"}}, "</s>", false, "Be brief.").text,
            "Be brief. USER: Q ASSISTANT: A</s>");
  EXPECT_EQ(render("llava-hf", {{"Q", "A"}}, "</s>", false, "Be brief.").text,
            "Be brief. USER: Q ASSISTANT: A</s>");
  EXPECT_THROW(render("plain", {{"Q", "A"}}, "</s>", false, "Be brief."), Error);
  // An empty text replaces the template's own; a template without a system text is unchanged.
  EXPECT_EQ(render("llava-v1", {{"Q", "A"}}, "</s>", false, "").text, " USER: Q ASSISTANT: A</s>");
  EXPECT_EQ(render("plain", {{"Q", "A"}}, "</s>", false, "").text, "QA</s>");
}

TEST(ChatTemplate, AFormRefusesWhatItHasNoPlaceFor) {
  const auto refused = [](Conversation talk, const std::string& piece) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece,
                     named_form("llava-v1", "</s>", "<image>")->render(talk));
  };
  Conversation talk{messages_of({{"Q", "A"}})};
  talk.tools = "[{}]";
  refused(talk, "tools, for which the template has no place");
  talk = {messages_of({{"Q", "A"}})};
  talk.messages[1].reasoning = "because";
  refused(talk, "reasoning, for which");
  talk.messages[1].reasoning.clear();
  talk.messages[1].tool_calls = "[{}]";
  refused(talk, "tool calls, for which");
}

TEST(ChatTemplate, Names) {
  EXPECT_EQ(named_forms(), (std::vector<std::string>{"llava-v1", "llava-hf", "plain"}));
  EXPECT_TRUE(is_named_form("plain"));
  EXPECT_FALSE(is_named_form("llava"));
  EXPECT_THROW(render("llava", {}, "</s>"), Error);
  std::set<std::string> hashes;
  for (const std::string& name : named_forms())
    hashes.insert(named_form(name, "</s>", "<image>")->hash());
  EXPECT_EQ(hashes.size(), named_forms().size());
}

TEST(ChatTemplate, ALateSystemTextHasNoPlaceInANamedForm) {
  const Conversation talk{{{.role = "user", .text = "Q"}, {.role = "system", .text = "S"}}};
  EXPECT_THROW(named_form("llava-hf", "</s>", "<image>")->render(talk, true), Error);
}

TEST(Conversation, AMessageMaySayWhereItsImagesAre) {
  Message message{.role = "user", .text = "<image> is <image>\nthis", .marks = {{11}}};
  std::string out;
  for (const Part& part : parts_of(message))
    out += (part.is_image ? "I[" : "T[") + std::string(part.text) + "]";
  EXPECT_EQ(out, "T[<image> is ]I[<image>\n]T[this]");
  const Conversation talk{{message}};
  const Rendered rendered = named_form("plain", "</s>", "<image>")->render(talk, true);
  ASSERT_EQ(rendered.images.size(), 1u);
  EXPECT_EQ(rendered.images[0].begin, 11u);
  ASSERT_EQ(rendered.given.size(), 2u);
  EXPECT_EQ(rendered.given[0].end, 11u);
  message.marks.emplace();
  EXPECT_EQ(parts_of(message).size(), 1u);
}

TEST(Conversation, ANewlineNextToAnImageBelongsToIt) {
  const auto parts = [](std::string_view text) {
    std::string out;
    const Message message{.role = "user", .text = std::string(text)};
    for (const Part& part : parts_of(message))
      out += (part.is_image ? "I[" : "T[") + std::string(part.text) + "]";
    return out;
  };
  EXPECT_EQ(parts("<image>\nWhat?"), "I[<image>\n]T[What?]");
  EXPECT_EQ(parts("What?\n<image>"), "T[What?]I[\n<image>]");
  EXPECT_EQ(parts("a\n<image>\nb"), "T[a\n]I[<image>\n]T[b]");
  EXPECT_EQ(parts("<image>\n<image>\n\nb"), "I[<image>\n]I[<image>\n]T[\nb]");
  EXPECT_EQ(parts("<image><image> b"), "I[<image>]I[<image>]T[ b]");
  EXPECT_EQ(parts("\n<image>"), "I[\n<image>]");
  EXPECT_EQ(parts("no image"), "T[no image]");
  EXPECT_EQ(parts(""), "");
}

TEST(Labels, AnySharedByteSupervises) {
  const std::vector<Token> tokens = {{1, 0, 0},  {10, 0, 4},  {11, 4, 6},  {12, 6, 6},
                                     {13, 6, 9}, {14, 9, 10}, {15, 9, 10}, {16, 10, 12}};
  EXPECT_EQ(supervised_mask(tokens, {{5, 7}, {9, 10}}),
            (std::vector<bool>{false, false, true, false, true, true, true, false}));
  EXPECT_EQ(supervised_mask(tokens, {}), std::vector<bool>(8, false));
  EXPECT_EQ(supervised_mask(tokens, {{0, 12}}),
            (std::vector<bool>{false, true, true, false, true, true, true, true}));
  EXPECT_EQ(supervised_mask(tokens, {{4, 4}}), std::vector<bool>(8, false));
  EXPECT_TRUE(supervised_mask({}, {{0, 1}}).empty());
}

/// The answer with its space and its end token, and nothing of the question, for every
/// tokenizer.
TEST(Labels, SupervisedTokensAreTheAnswer) {
  for (const char* golden : {"llama_legacy", "llama_legacy_model", "metaspace_always",
                             "metaspace_first_model", "model_only"}) {
    const auto tokenizer = Tokenizer::load(test::golden_dir(golden));
    for (const std::string& name : {std::string("llava-v1"), std::string("llava-hf")}) {
      const Rendered rendered = render(name,
                                       {{"<image>\nHow many?", "two caf\xC3\xA9s \xF0\x9F\x98\x80"},
                                        {"Where?", "on the street"}},
                                       tokenizer->eos_token());
      const auto tokens = tokenizer->encode(rendered.text);
      const auto mask = supervised_mask(tokens, rendered.supervised);
      std::vector<int64_t> answer;
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (mask[i]) answer.push_back(tokens[i].id);
      }
      EXPECT_EQ(tokenizer->decode(answer, false),
                "two caf\xC3\xA9s \xF0\x9F\x98\x80</s> on the street</s>")
          << golden << " " << name;
      EXPECT_EQ(answer.back(), 2);
      EXPECT_EQ(std::count(answer.begin(), answer.end(), 2), 2);
    }
  }
}

}  // namespace
}  // namespace lft::chat_template_test
