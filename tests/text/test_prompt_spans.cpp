// A chat template's rendering of a conversation: which bytes are supervised, from the row, or an
// image; and templates that hide an answer.
#include "src/text/chat/jinja_template.h"
#include "tests/support/expect_error.h"
#include "tests/text/text_test.h"

namespace lft::prompt_spans_test {
using namespace lft::text;
namespace {

const std::string kChatml =
    "{% for m in messages %}<|{{ m.role }}|>{% for p in m.content %}"
    "{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

std::shared_ptr<const ChatTemplate> chat(const std::string& jinja,
                                         const io::Json& args = io::Json::object()) {
  static const auto tokenizer = Tokenizer::load(test::golden_dir("llama_legacy"));
  return jinja_template({jinja, "t.jinja"}, *tokenizer,
                        {.ends = {"</s>"}, .placeholder = "<image>", .args = args});
}

Conversation talk(const std::vector<Turn>& turns) { return {messages_of(turns)}; }

std::vector<std::string> texts(const Rendered& rendered, const std::vector<Rendered::Span>& spans) {
  std::vector<std::string> out;
  for (const auto& span : spans)
    out.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  return out;
}
using Texts = std::vector<std::string>;

TEST(Prompt, AnswersUpToTheTokenThatEndsTheTurn) {
  const Rendered got = chat(kChatml)->render(talk({{"<image>\nQ", "one"}, {"R", "two"}}));
  EXPECT_EQ(got.text,
            "<|user|><image>Q</s>\n<|assistant|>one</s>\n<|user|>R</s>\n<|assistant|>two</s>\n");
  EXPECT_EQ(texts(got, got.supervised), (Texts{"one</s>", "two</s>"}));
  EXPECT_EQ(texts(got, got.given), (Texts{"Q", "one", "R", "two"}));
  EXPECT_EQ(texts(got, got.images), Texts{"<image>"});
  EXPECT_EQ(chat(kChatml)->end(), "</s>");
  EXPECT_TRUE(chat(kChatml)->notes().empty());
}

TEST(Prompt, ToGenerateEndsWhereTheAnswerBegins) {
  const Rendered got = chat(kChatml)->render(talk({{"Q", ""}}), /*generate=*/true);
  EXPECT_EQ(got.text, "<|user|>Q</s>\n<|assistant|>");
  EXPECT_TRUE(got.supervised.empty());
}

TEST(Prompt, MaskedAnswersAreNotSupervised) {
  Conversation masked = talk({{"Q", "one"}, {"R", "two"}});
  masked.messages[1].learnt = false;
  const Rendered got = chat(kChatml)->render(masked);
  EXPECT_EQ(texts(got, got.supervised), Texts{"two</s>"});
  EXPECT_EQ(texts(got, got.masked), Texts{"one</s>"});
}

TEST(Prompt, ATemplateThatEndsNoTurnGetsTheEndToken) {
  const auto vicuna = chat(
      "{% for m in messages %}{{ m.role.upper() }}: {% for p in m.content | selectattr('type', "
      "'equalto', 'image') %}<image>\n{% endfor %}{% for p in m.content | selectattr('type', "
      "'equalto', 'text') %}{{ p.text + ' ' }}{% endfor %}{% endfor %}");
  const Rendered got = vicuna->render(talk({{"See <image> here", "one"}, {"<image>\nR", "two"}}));
  EXPECT_EQ(got.text,
            "USER: <image>\nSee   here ASSISTANT: one</s> USER: <image>\nR ASSISTANT: two</s> ");
  EXPECT_EQ(texts(got, got.supervised), (Texts{"one</s>", "two</s>"}));
  EXPECT_EQ(texts(got, got.images), (Texts{"<image>", "<image>"}));
  ASSERT_EQ(vicuna->notes().size(), 1U);
  EXPECT_NE(vicuna->notes()[0].find("ends no turn: </s>"), std::string::npos);
}

TEST(Prompt, WhatTheTemplateMarksIsSupervised) {
  const Rendered got =
      chat(
          "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}"
          "so: {{ m.content[0].text }}</s>!{% endgeneration %}{% else %}{{ m.content[0].text }}"
          "{% endif %}{% endfor %}")
          ->render(talk({{"Q", "one"}, {"R", "two"}}));
  EXPECT_EQ(got.text, "[user]Q[assistant]so: one</s>![user]R[assistant]so: two</s>!");
  EXPECT_EQ(texts(got, got.supervised), (Texts{"so: one</s>!", "so: two</s>!"}));
}

TEST(Prompt, EveryMarkedRangeIsSupervisedAndNoneGetsAnEndTokenThatTheTemplateWrites) {
  const Rendered own_end =
      chat(
          "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}"
          "{{ m.content[0].text }}{% endgeneration %}{% generation %}</s>{% endgeneration %}"
          "{% else %}{{ m.content[0].text }}{% endif %}{% endfor %}")
          ->render(talk({{"Q", "one"}, {"R", "two"}}));
  EXPECT_EQ(own_end.text, "[user]Q[assistant]one</s>[user]R[assistant]two</s>");
  EXPECT_EQ(texts(own_end, own_end.supervised), (Texts{"one", "</s>", "two", "</s>"}));
  Conversation thinks = talk({{"Q", "one"}});
  thinks.messages[1].reasoning = "hm";
  const Rendered both =
      chat(
          "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}"
          "{% if m.reasoning_content %}{% generation %}{{ m.reasoning_content }}{% endgeneration %}"
          "/{% endif %}{% generation %}{{ m.content[0].text }}</s>{% endgeneration %}{% else %}"
          "{{ m.content[0].text }}{% endif %}{% endfor %}")
          ->render(thinks);
  EXPECT_EQ(both.text, "[user]Q[assistant]hm/one</s>");
  EXPECT_EQ(texts(both, both.supervised), (Texts{"hm", "one</s>"}));
}

// <s> in place of a token that closes a text: the turn ends with </s>.
TEST(Prompt, TheTokenThatEndsTheTurnMayFollowAnother) {
  const std::string body =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content[0].text }}<s></s>{% endfor %}";
  const Rendered got = chat(body)->render(talk({{"Q", "one"}, {"R", "two"}}));
  EXPECT_EQ(texts(got, got.supervised), (Texts{"one<s></s>", "two<s></s>"}));
  const Rendered opens = chat(body + "<s>header")->render(talk({{"Q", "one"}, {"R", "two"}}));
  EXPECT_EQ(opens.text.substr(opens.text.size() - 9), "<s>header");
  EXPECT_EQ(texts(opens, opens.supervised), (Texts{"one<s></s>", "two<s></s>"}));
}

TEST(Prompt, TheLastTurnMayEndWithAnotherTokenThanTheOthers) {
  const Rendered got = chat(
                           "{% for m in messages %}[{{ m.role }}]{{ m.content[0].text }}"
                           "{{ '</s>' if loop.last else '<unk><s>' }}{% endfor %}")
                           ->render(talk({{"Q", "one"}, {"R", "two"}}));
  EXPECT_EQ(got.text, "[user]Q<unk><s>[assistant]one<unk><s>[user]R<unk><s>[assistant]two</s>");
  EXPECT_EQ(texts(got, got.supervised), (Texts{"one<unk>", "two</s>"}));
}

constexpr char kCalls[] =
    "{% for m in messages %}<{{ m.role }}{% if m.role == 'tool' %} "
    "{{ messages[loop.index0 - 1].tool_calls[0].function.name }}{% endif %}>"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
    "{% endfor %}{% endif %}{% for c in m.tool_calls or [] %} <call>{{ c.function.name }}("
    "{{ c.function.arguments | tojson }})</call>{% endfor %}";

Conversation calling(const std::string& text) {
  Conversation calls = talk({{"Q", "one"}});
  calls.messages[1].text = text;
  calls.messages[1].tool_calls = R"([{"function":{"name":"f","arguments":{"b":[1,"x"],"a":1}}}])";
  calls.messages.push_back({.role = "tool", .text = "42"});
  calls.messages.push_back({.role = "assistant", .text = "two"});
  return calls;
}

// The tool's message repeats the name of the function, which is not the assistant's word there.
TEST(Prompt, AToolCallIsSupervisedAsItIsRendered) {
  const auto ends = chat(std::string(kCalls) + "</s>{% endfor %}");
  const std::string call = "<call>f({\"b\": [1, \"x\"], \"a\": 1})</call></s>";
  const Rendered silent = ends->render(calling(""));
  EXPECT_EQ(silent.text, "<user>Q</s><assistant> " + call + "<tool f>42</s><assistant>two</s>");
  EXPECT_EQ(texts(silent, silent.supervised), (Texts{call, "two</s>"}));
  const Rendered said = ends->render(calling("Hm."));
  EXPECT_EQ(texts(said, said.supervised), (Texts{"Hm. " + call, "two</s>"}));
}

TEST(Prompt, ATemplateWithoutToolCallsEndsTheirTurnsAsOthers) {
  const Rendered got =
      chat("{% for m in messages %}<s>{{ m.role }}:{{ m.content[0].text }}</s>{% endfor %}")
          ->render(calling("Hm."));
  EXPECT_EQ(texts(got, got.supervised), (Texts{"Hm.</s>", "two</s>"}));
}

TEST(Prompt, TheEndTokenIsAddedAfterAWholeToolCall) {
  const auto endless = chat(std::string(kCalls) + "{% endfor %}");
  const std::string call = "<call>f({\"b\": [1, \"x\"], \"a\": 1})</call></s>";
  Conversation talk = calling("Hm.");
  const Rendered whole = endless->render(talk);
  EXPECT_EQ(texts(whole, whole.supervised), (Texts{"Hm. " + call, "two</s>"}));
  talk.messages.resize(2);
  const Rendered last = endless->render(talk);
  EXPECT_EQ(texts(last, last.supervised), (Texts{"Hm. " + call}));
}

TEST(Prompt, PlaceholdersInARowsWordsAreNoImages) {
  // A template that prints texts can print a literal placeholder where there is no image.
  const auto plain = chat("{% for m in messages %}{{ m.role }} {{ m.content }}</s>{% endfor %}");
  Conversation words = talk({{"Q", "one"}});
  words.messages[1].text = "an <image> is";
  EXPECT_LFT_ERROR(ErrorKind::kInput, "one placeholder for each image", plain->render(words));
  words.messages[1].text = "</s> is a token";
  const Rendered got = plain->render(words);
  EXPECT_EQ(texts(got, got.supervised), Texts{"</s> is a token</s>"});
  EXPECT_EQ(texts(got, got.given), (Texts{"Q", "</s> is a token"}));
}

TEST(Prompt, ReasoningAndToolCallsAreTheAnswersOwnWords) {
  const auto tools = chat(
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>"
      "{{ m.reasoning_content }}</think>{% endif %}{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
      "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}</s>"
      "{% endfor %}");
  Conversation calls = talk({{"Q", "one"}});
  calls.messages[1].reasoning = "hm";
  calls.messages[1].tool_calls = R"([{"function":{"name":"f","arguments":{"b":1,"a":[true]}}}])";
  calls.messages.push_back({.role = "tool", .text = "42"});
  calls.messages.push_back({.role = "assistant", .text = "two"});
  const Rendered got = tools->render(calls);
  EXPECT_EQ(got.text,
            "<user>Q</s><assistant><think>hm</think>one<call>{\"name\": \"f\", \"arguments\": "
            "{\"b\": 1, \"a\": [true]}}</call></s><tool>42</s><assistant>two</s>");
  EXPECT_EQ(texts(got, got.supervised),
            (Texts{"hm</think>one<call>{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": "
                   "[true]}}</call></s>",
                   "two</s>"}));
}

TEST(Prompt, ATemplateThatHidesAnAnswerIsRefused) {
  EXPECT_LFT_ERROR(ErrorKind::kInput, "leaves out",
                   chat("{% for m in messages if m.role == 'user' %}{{ m.content[0].text }}"
                        "{% endfor %}"));
  const auto second = chat(
      "{% for m in messages %}{{ m.content[0].text if loop.index < 3 else m.content[0].text | "
      "upper "
      "}}</s>{% endfor %}");
  EXPECT_EQ(second->render(talk({{"Q", "one"}})).text, "Q</s>one</s>");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "rewritten by upper",
                   second->render(talk({{"Q", "one"}, {"R", "two"}})));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "t.jinja:2", chat("{{ messages }}\n{% nonsense %}"));
}

TEST(Prompt, ArgumentsReachTheTemplateAndItsHash) {
  const std::string jinja =
      "{% for m in messages %}{{ m.content[0].text }}{{ '~' if loud }}</s>{% endfor %}";
  const auto quiet = chat(jinja), loud = chat(jinja, {{"loud", true}});
  EXPECT_EQ(quiet->render(talk({{"Q", "A"}})).text, "Q</s>A</s>");
  EXPECT_EQ(loud->render(talk({{"Q", "A"}})).text, "Q~</s>A~</s>");
  EXPECT_NE(quiet->hash(), loud->hash());
  EXPECT_EQ(loud->jinja(), jinja);
}

}  // namespace
}  // namespace lft::prompt_spans_test
