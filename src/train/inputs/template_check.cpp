#include "src/train/inputs/template_check.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/text/chat/template_files.h"
#include "src/train/inputs/recipe_encoding.h"

namespace lft::train {
namespace {

constexpr size_t kBefore = 16, kShown = 60;  // characters

/// A whole UTF-8 character begins at the position.
size_t at_character(const std::string& text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

/// The text around its first difference from another.
std::string excerpt(const std::string& text, size_t difference) {
  if (difference >= text.size()) return "its end, after " + quote_text(text, kShown);
  const size_t from = at_character(text, difference > kBefore ? difference - kBefore : size_t{0});
  return quote_text(text.substr(from), kShown);
}

constexpr int64_t kRows = 64;

bool answers_without_reasoning(const data::Dataset& rows) {
  for (int64_t i = 0; i < std::min(rows.size(), kRows); ++i) {
    const data::Row row = rows.row(i);
    for (const text::Message& message : row.messages()) {
      if (message.role == "assistant" && message.learnt && message.reasoning.empty()) return true;
    }
  }
  return false;
}

}  // namespace

std::string judge_answer_start(const data::EncodeOptions& encode, const data::Dataset& rows) {
  text::Conversation example{text::messages_of({{"What is this?", "A cat."}})};
  std::string prompt, before;
  try {
    const text::Rendered whole = encode.chat->render(example);
    if (whole.supervised.empty()) return "";
    before = whole.text.substr(0, whole.supervised.front().begin);
    example.messages.pop_back();
    prompt = encode.chat->render(example, /*generate=*/true).text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return "";  // the template needs a system text
  }
  if (!before.starts_with(prompt)) return "";
  const std::string between = before.substr(prompt.size());
  if (is_blank_text(between) || !answers_without_reasoning(rows)) return "";
  return "the chat template writes " + quote_text(between, kShown) +
         " between the prompt for an answer and an answer without reasoning. It is not supervised, "
         "and generate, eval, serve and other servers end the prompt before it, where the model is "
         "not trained to continue. data.template_args: {enable_thinking: false} changes the prompt "
         "of most such templates; otherwise give the rows reasoning_content, or name a template "
         "of your own";
}

std::string judge_template(const recipe::Recipe& recipe, const data::EncodeOptions& encode,
                           const text::Tokenizer& tokenizer) {
  const std::string& named = recipe.data.chat_template;
  const std::string& model = recipe.model.path;
  if (named == "auto") return "";
  const text::Conversation example{text::messages_of({{"<image>\nWhat is this?", "A cat."}})};
  std::string own, used;
  try {
    const auto found = text::find_template(model);
    if (!found) return "";
    family::InputSettings settings = encode_rules(recipe).settings;
    settings.template_name = "auto";
    std::vector<std::string> notices;
    own = data::choose_chat(model, encode.config, tokenizer, settings, encode.eos, notices)
              ->render(example)
              .text;
    used = encode.chat->render(example).text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return "";  // one of them cannot render the example; rows that it cannot render are refused
  }
  if (used == own) return "";
  const auto [mine, theirs] = std::ranges::mismatch(used, own);
  const auto difference = static_cast<size_t>(mine - used.begin());
  return "data.template: " + named +
         " is not the chat template of the checkpoint. Prompts differ: " +
         excerpt(used, difference) + " here, " + excerpt(own, difference) +
         " in the checkpoint's. A model answers best in the form that it was trained with: leave "
         "data.template out to use the checkpoint's";
}

}  // namespace lft::train
