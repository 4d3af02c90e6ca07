// A chat template: a conversation to one string, with the byte ranges that are supervised, that a
// row said, and that are placeholders of its images. The template of a checkpoint is Jinja
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
  // Each list is in order, and no two spans of it overlap.
  std::vector<Span> supervised = {};  // answers that are learnt, each with its end token
  std::vector<Span> masked = {};      // the same of answers that are not learnt
  std::vector<Span> given = {};       // what the conversation says, without image marks
  std::vector<Span> images = {};      // an image's placeholder, in the order of the images
  bool has_bos = false;               // the text begins with the tokenizer's BOS
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  /// Thread-safe. With `generate` the text ends where the next answer begins. kInput where the
  /// template refuses the conversation, has no place for a part of it, or drops an answer.
  virtual Rendered render(const Conversation& conversation, bool generate = false) const = 0;
  /// sha256 of everything that decides the text.
  virtual std::string hash() const = 0;
  /// The Jinja that transformers and servers render, as a chat_template.jinja contains it.
  virtual std::string jinja() const = 0;
  /// The token that ends an answer.
  virtual std::string end() const = 0;
  /// What a user should know of it, each a line: "the template ends no turn: ...".
  virtual std::vector<std::string> notes() const { return {}; }
  /// A named form's name, or the file that the template was read from.
  virtual std::string name() const = 0;
  /// Whether a placeholder is transformers' own, without the tokens around it that a family's
  /// ImagePlan::text contains.
  virtual bool bare_placeholders() const = 0;
};

}  // namespace lft::text
