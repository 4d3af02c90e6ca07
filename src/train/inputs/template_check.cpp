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

}  // namespace

std::string judge_template(const recipe::Recipe& recipe, const data::EncodeOptions& encode,
                           const text::Tokenizer& tokenizer) {
  const std::string& named = recipe.data.chat_template;
  const std::string& model = recipe.model.path;
  if (named == "auto") return "";
  const text::Conversation example{text::messages_of({{"<image>\nWhat is this?", "A cat."}})};
  std::string own;
  try {
    const auto found = text::find_template(model);
    if (!found) return "";
    family::InputSettings settings = encode_rules(recipe).settings;
    settings.template_name = "auto";
    std::vector<std::string> notices;
    own = data::choose_chat(model, encode.config, tokenizer, settings, encode.eos, notices)
              ->render(example)
              .text;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    return "";  // the checkpoint's template is invalid, which may be why another one is named
  }
  const std::string used = encode.chat->render(example).text;
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
