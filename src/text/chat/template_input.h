// A conversation as a template's variables, with the owner of each value.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "src/io/json.h"
#include "src/text/chat/conversation.h"
#include "src/text/jinja/value/value.h"

namespace lft::text {

/// Which roles' content the template takes as a list of parts, as transformers' processors pass it,
/// and which as a text.
struct ContentForm {
  bool system = true, user = true, assistant = true, tool = true;  // true: a list
  bool of(const std::string& role) const;
};

/// The origin of a value of the variables.
struct ValueOwner {
  enum class Field : uint8_t { kNone, kWords, kTools };
  int32_t message = -1;        // its message; -1: none
  Field field = Field::kNone;  // kWords: content, reasoning and tool calls; kNone: role, type, ...
  bool is_container = false;   // a list or an object, which no template prints intentionally
  bool is_call = false;        // part of the message's tool calls
};

struct TemplateInput {
  jinja::Value variables;          // a dict
  std::vector<ValueOwner> owners;  // of the values, by their source
};

/// Variables common to all conversations: tokens and data.template_args. Names of a conversation's
/// own variables are omitted.
using TemplateConstants = std::vector<std::pair<jinja::Value, jinja::Value>>;
TemplateConstants template_constants(const nlohmann::ordered_json& values);

TemplateInput template_input(const Conversation& conversation, const ContentForm& form,
                             bool generate, const TemplateConstants& constants);

}  // namespace lft::text
