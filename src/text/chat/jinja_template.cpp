#include "src/text/chat/jinja_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/text/chat/prompt_spans.h"
#include "src/text/chat/template_input.h"
#include "src/text/jinja/template.h"

namespace lft::text {
namespace {

using Json = nlohmann::ordered_json;

/// The variables common to all conversations: the tokenizer's special tokens that exist, as
/// transformers passes them.
Json constants_of(const SpecialTokens& special, const io::Json& args) {
  Json constants = Json::object();
  const auto add = [&](const char* name, const std::string& token) {
    if (!token.empty()) constants[name] = token;
  };
  add("bos_token", special.bos);
  add("eos_token", special.eos);
  add("pad_token", special.pad);
  add("unk_token", special.unk);
  for (const auto& [name, value] : args.items()) constants[name] = Json::parse(value.dump());
  return constants;
}

/// A trial conversation, whose words can be found in the output of a template.
Conversation trial(bool with_system) {
  Conversation talk;
  if (with_system) talk.messages.push_back({.role = "system", .text = "trialsystem"});
  talk.messages.push_back({.role = "user", .text = "trialquestion"});
  talk.messages.push_back({.role = "assistant", .text = "trialanswer"});
  return talk;
}

/// The same with a tool's message after an answer that calls the tool and contains `text`.
Conversation tool_trial(const std::string& text) {
  Conversation talk = trial(false);
  talk.tools = R"([{"type": "function", "function": {"name": "trialtool", "description": "d",
      "parameters": {"type": "object", "properties": {"x": {"type": "string",
      "description": "d"}}, "required": ["x"]}}}])";
  const Message calls{
      .role = "assistant", .text = text, .tool_calls = R"([{"type": "function", "id": "trial0000",
      "function": {"name": "trialtool", "arguments": {"x": "y"}}}])"};
  const Message result{
      .role = "tool", .text = "trialresult", .tool_call_id = "trial0000", .name = "trialtool"};
  talk.messages.insert(talk.messages.begin() + 1, {calls, result});
  return talk;
}

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(const TemplateText& source, const Tokenizer& tokenizer, const JinjaRules& rules)
      : source_(source),
        template_(jinja::Template::parse(source.text, source.where)),
        constants_(constants_of(tokenizer.special(), rules.args)),
        variables_(template_constants(constants_)),
        date_(rules.date),
        spans_{.ends = rules.ends,
               .placeholder = rules.placeholder,
               .bos = tokenizer.bos_token(),
               .where = source.where} {
    choose_form();
    find_end(tokenizer);
  }

  Rendered render(const Conversation& conversation, bool generate) const override {
    const TemplateInput input = template_input(conversation, form_, generate, variables_);
    return prompt_of(run(input), input.owners, conversation, template_.marks_generation(), spans_);
  }

  std::string hash() const override {
    return sha256(source_.text + "\n" + constants_.dump() +
                  (uses_date(source_.text) ? "\n" + date_ : ""));
  }
  std::string jinja() const override { return source_.text; }
  std::string end() const override { return end_; }
  std::string name() const override { return source_.where; }
  bool bare_placeholders() const override { return true; }
  std::vector<std::string> notes() const override {
    if (ends_turns_) return {};
    return {"the chat template ends no turn: " + end_ + " is added after each answer, supervised"};
  }

 private:
  jinja::Rendering run(const TemplateInput& input) const {
    return template_.render(input.variables, {.limits = {}, .date = date_});
  }

  /// Whether the template prints the words of all non-empty messages in this form, and prints no
  /// list as a whole.
  bool takes(const Conversation& talk, const ContentForm& form) const {
    const TemplateInput input = template_input(talk, form, false, variables_);
    const jinja::Rendering rendering = run(input);
    std::vector<bool> said(talk.messages.size(), false);
    for (const jinja::Run& run : rendering.text.runs()) {
      const ValueOwner& owner = input.owners.at(static_cast<size_t>(run.source));
      if (owner.message < 0) continue;
      if (owner.field == ValueOwner::Field::kWords)
        said[static_cast<size_t>(owner.message)] = true;
      else if (owner.is_container)
        return false;  // a content list printed as a whole
    }
    for (size_t i = 0; i < said.size(); ++i) {
      if (!said[i] && !talk.messages[i].text.empty()) return false;
    }
    return true;
  }

  /// The same; an error of the template counts as false.
  bool tries(const Conversation& talk, const ContentForm& form, std::optional<Error>* error) const {
    try {
      return takes(talk, form);
    } catch (const Error& caught) {
      if (!*error) *error = caught;
      return false;
    }
  }

  /// Lists are tried before texts, as transformers' processors pass them. A template may not
  /// support a system text or tools.
  void choose_form() {
    std::optional<Error> error;
    bool found = false;
    for (const bool with_system : {true, false}) {
      for (unsigned texts = 0; texts < 8 && !found; ++texts) {
        const ContentForm form{
            .system = (texts & 4U) == 0, .user = (texts & 1U) == 0, .assistant = (texts & 2U) == 0};
        if (!with_system && !form.system) continue;
        found = tries(trial(with_system), form, &error);
        if (found) form_ = form;
      }
      if (found) break;
    }
    if (!found) {
      if (error) throw Error(*error);
      refuse(ErrorKind::kInput,
             "the chat template leaves out a user's question or an assistant's answer",
             source_.where, "a trial conversation of one question and one answer" + rewritten(),
             "both in the prompt, as they are", "take another chat template in data.template");
    }
    choose_tool_form();
  }

  /// ", rewritten by upper, line 3" if a filter rewrites words of the trial conversation.
  std::string rewritten() const {
    const TemplateInput input = template_input(trial(false), ContentForm(), false, variables_);
    const jinja::Rendering rendering = run(input);
    for (size_t i = 0; i < rendering.lost.size(); ++i) {
      const ValueOwner& owner = input.owners.at(static_cast<size_t>(rendering.lost[i]));
      if (owner.field == ValueOwner::Field::kWords) return ", rewritten by " + rendering.lost_by[i];
    }
    return "";
  }

  /// A template without support for tools receives their results as questions.
  void choose_tool_form() {
    std::optional<Error> ignored;
    for (const bool as_list : {true, false}) {
      for (const char* said : {"", "trialsaid"}) {
        form_.tool = as_list;
        if (tries(tool_trial(said), form_, &ignored)) return;
      }
    }
    form_.tool = form_.user;
  }

  /// The special token after the last answer, which also ends turns.
  void find_end(const Tokenizer& tokenizer) {
    const Conversation talk = trial(false);
    const TemplateInput input = template_input(talk, form_, false, variables_);
    const jinja::Rendering rendering = run(input);
    const std::string_view text = rendering.text.bytes();
    size_t after = 0;
    for (const jinja::Run& run : rendering.text.runs()) {
      if (input.owners.at(static_cast<size_t>(run.source)).message == 1) after = run.end;
    }
    for (const Token& token : tokenizer.encode(text)) {
      if (token.begin < after || token.begin == token.end || !tokenizer.is_special(token.id))
        continue;
      end_ = tokenizer.token_of(token.id);
      break;
    }
    ends_turns_ = !end_.empty();
    if (ends_turns_ && std::ranges::find(spans_.ends, end_) == spans_.ends.end())
      spans_.ends.push_back(end_);
    if (!ends_turns_) end_ = spans_.ends.front();
  }

  const TemplateText source_;
  const jinja::Template template_;
  const Json constants_;
  const TemplateConstants variables_;  // the constants as variables
  const std::string date_;
  SpanRules spans_;
  ContentForm form_;
  std::string end_;
  bool ends_turns_ = true;
};

}  // namespace

std::shared_ptr<const ChatTemplate> jinja_template(const TemplateText& source,
                                                   const Tokenizer& tokenizer,
                                                   const JinjaRules& rules) {
  return std::make_shared<JinjaTemplate>(source, tokenizer, rules);
}

}  // namespace lft::text
