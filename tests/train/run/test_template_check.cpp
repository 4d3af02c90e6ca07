// The warning about a chat template other than the checkpoint's.
#include <gtest/gtest.h>

#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/template_check.h"
#include "train/tiny_run.h"

namespace lft::template_check_test {
using namespace lft::test;
namespace {

/// llava-hf's prompt as Jinja.
constexpr char kOwn[] =
    R"({% for m in messages %}{% if m['role'] == 'user' %}USER: {% for part in m['content'] %})"
    R"({% if part['type'] == 'image' %}{{ '<image>\n' }}{% else %}{{ part['text'] }})"
    R"({% endif %}{% endfor %})"
    R"({% else %} ASSISTANT: {{ m['content'][0]['text'] }}{% endif %}{% endfor %}{% if )"
    R"(add_generation_prompt %} ASSISTANT:{% endif %})";

std::string judged(const TinyRun& run, const std::string& named) {
  Recipe recipe = run.recipe("out");
  recipe.data.chat_template = named;
  const train::RunInputs inputs = train::open_inputs(recipe);
  return train::judge_template(recipe, inputs.data.encode, *inputs.data.tokenizer);
}

TEST(TemplateCheck, TheFirstDifferenceOfThePromptsIsShown) {
  const TinyRun run;
  EXPECT_EQ(judged(run, "llava-v1"), "") << "the checkpoint has no template";
  run.dir().write("model/chat_template.jinja", kOwn);
  EXPECT_EQ(judged(run, "auto"), "");
  EXPECT_EQ(judged(run, "llava-hf"), "") << "another name of the same prompt";
  const std::string line = judged(run, "llava-v1");
  EXPECT_NE(line.find("data.template: llava-v1 is not the chat template of the checkpoint"),
            std::string::npos)
      << line;
  EXPECT_NE(line.find("\"A chat between a curious"), std::string::npos) << line;
  EXPECT_NE(line.find("\"USER: <image>"), std::string::npos) << line;
  // The difference is after a common beginning, which is shown with it.
  const std::string late = judged(run, run.dir().write("late.jinja", std::string(kOwn) + "!"));
  EXPECT_NE(late.find("A cat.</s>!"), std::string::npos) << late;
}

/// `opened`: what follows <think> in the prompt for an answer.
std::string started(const TinyRun& run, const std::string& opened, const std::string& reasoning) {
  run.dir().write("model/chat_template.jinja",
                  "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}<think>"
                  "{{ m.reasoning_content or '' }}</think>{% endif %}"
                  "{% for p in m.content %}{{ p.text }}{% endfor %}</s>{% endfor %}"
                  "{% if add_generation_prompt %}assistant:<think>" +
                      opened + "{% endif %}");
  nlohmann::json row = {
      {"messages",
       {{{"role", "user"}, {"content", "What?"}}, {{"role", "assistant"}, {"content", "red"}}}}};
  if (!reasoning.empty()) row["messages"][1]["reasoning_content"] = reasoning;
  Recipe recipe = run.recipe("out");
  recipe.data.train = run.dir().write("rows.jsonl", row.dump());
  recipe.data.chat_template = "auto";
  const train::RunInputs inputs = train::open_inputs(recipe);
  return train::judge_answer_start(inputs.data.encode, *inputs.data.train);
}

TEST(TemplateCheck, AnEmptyReasoningThatThePromptLacksIsReported) {
  const TinyRun run;
  const std::string line = started(run, "", "");
  EXPECT_NE(line.find("the chat template writes \"</think>\" between"), std::string::npos) << line;
  EXPECT_NE(line.find("enable_thinking: false"), std::string::npos) << line;
  EXPECT_EQ(started(run, "</think>", ""), "") << "both prompts are equal";
  EXPECT_EQ(started(run, "", "hm"), "") << "every answer has a reasoning";
}

TEST(TemplateCheck, AnInvalidTemplateOfTheCheckpointIsNoReasonToStop) {
  const TinyRun run;
  run.dir().write("model/chat_template.jinja", "{% for %}");
  EXPECT_EQ(judged(run, "llava-v1"), "");
}

}  // namespace
}  // namespace lft::template_check_test
