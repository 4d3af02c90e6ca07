#include "src/text/chat/jinja_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/text/chat/prompt_spans.h"
#include "src/text/chat/template_input.h"
#include "src/text/chat/template_trial.h"
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
    learn_ends(tokenizer);
  }

  Rendered render(const Conversation& conversation, bool generate) const override {
    const TemplateInput input = template_input(conversation, form_, generate, variables_);
    const jinja::Rendering rendering = run(input);
    return prompt_of({.rendering = rendering,
                      .owners = input.owners,
                      .conversation = conversation,
                      .marks_generation = template_.marks_generation(),
                      .call_tails = call_tails(conversation)},
                     spans_);
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
    if (spans_.ends_turns) return {};
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
        if (!found) continue;
        form_ = form;
        takes_system_ = with_system;
        needs_system_ = with_system && !tries(trial(false), form, &error);
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
        takes_tools_ = tries(tool_trial(needs_system_, said), form_, &ignored);
        if (takes_tools_) return;
      }
    }
    form_.tool = form_.user;
  }

  RenderedTrial rendered(const Conversation& talk) const {
    TemplateInput input = template_input(talk, form_, false, variables_);
    jinja::Rendering rendering = run(input);
    return {std::move(rendering), std::move(input.owners)};
  }

  /// Finds the tokens that end turns, in trial conversations.
  void learn_ends(const Tokenizer& tokenizer) {
    const LearnedTurns learned =
        learn_turns([this](const Conversation& talk) { return rendered(talk); }, tokenizer,
                    {takes_system_, needs_system_, takes_tools_});
    spans_.ends_turns = !learned.words.last.empty();
    spans_.words = learned.words, spans_.calls = learned.calls, spans_.opening = learned.opening;
    for (const TurnEnds& ends : {learned.words, learned.calls}) {
      for (const std::string& end : {ends.last, ends.inner}) {
        if (!end.empty() && std::ranges::find(spans_.ends, end) == spans_.ends.end())
          spans_.ends.push_back(end);
      }
    }
    end_ = spans_.ends_turns ? learned.words.last : spans_.ends.front();
  }

  /// As in Prompted: of the rendering that ends with the message.
  std::vector<std::string> call_tails(const Conversation& talk) const {
    std::vector<std::string> tails;
    if (spans_.ends_turns) return tails;
    for (size_t i = 0; i < talk.messages.size(); ++i) {
      tails.emplace_back();
      if (talk.messages[i].tool_calls.empty()) continue;
      tails.back() = call_tail(rendered(first_messages(talk, i + 1)), static_cast<int32_t>(i));
    }
    return tails;
  }

  const TemplateText source_;
  const jinja::Template template_;
  const Json constants_;
  const TemplateConstants variables_;  // the constants as variables
  const std::string date_;
  SpanRules spans_;
  ContentForm form_;
  bool takes_system_ = false, needs_system_ = false, takes_tools_ = false;
  std::string end_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> jinja_template(const TemplateText& source,
                                                   const Tokenizer& tokenizer,
                                                   const JinjaRules& rules) {
  return std::make_shared<JinjaTemplate>(source, tokenizer, rules);
}

}  // namespace lft::text
