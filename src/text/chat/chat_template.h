// A chat template renders a conversation to one string, with the byte ranges that are supervised,
// that are copied from the row, and that are image placeholders. A checkpoint's template is Jinja
// (jinja_template.h); LLaVA's own forms have names (named_form.h).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/text/chat/conversation.h"
#include "src/text/tokenizer.h"

namespace lft::text {

struct Rendered {
  std::string text;
  struct Span {
    size_t begin, end;
  };
  // Each list is in order and without overlaps.
  std::vector<Span> supervised = {};  // trained answers, each with its end token
  std::vector<Span> masked = {};      // the same for answers that are not trained on
  std::vector<Span> given = {};       // text of the conversation, without image marks
  std::vector<Span> images = {};      // image placeholders in the order of the images
  bool has_bos = false;               // the text begins with the tokenizer's BOS
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  /// Thread-safe. With `generate` the text ends where the next answer begins. kInput if the
  /// template refuses the conversation, cannot express a part of it, or drops an answer.
  virtual Rendered render(const Conversation& conversation, bool generate = false) const = 0;
  /// sha256 of everything that determines the text.
  virtual std::string hash() const = 0;
  /// The Jinja template for transformers and servers, as in a chat_template.jinja.
  virtual std::string jinja() const = 0;
  /// The token that ends an answer.
  virtual std::string end() const = 0;
  /// Notices for the user, one line each: "the template ends no turn: ...".
  virtual std::vector<std::string> notes() const { return {}; }
  /// The name of a named form, or the path of the template's file.
  virtual std::string name() const = 0;
  /// Whether the placeholder is that of transformers, without the surrounding tokens that a
  /// family's ImagePlan::text contains.
  virtual bool bare_placeholders() const = 0;
};

}  // namespace lft::text
