// A conversation as a template's variables, and which of their values are whose words.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "src/io/json.h"
#include "src/text/chat/conversation.h"
#include "src/text/jinja/value/value.h"

namespace lft::text {

/// Which roles' content a template takes as a list of parts, as transformers' processors pass it,
/// and which as a text.
struct ContentForm {
  bool system = true, user = true, assistant = true, tool = true;  // true: a list
  bool of(const std::string& role) const;
};

/// What a value of the variables is.
struct ValueOwner {
  enum class Field : uint8_t { kNone, kWords, kTools };
  int32_t message = -1;        // whose it is; -1: of none
  Field field = Field::kNone;  // kWords: content, reasoning and tool calls; kNone: role, type, ...
  bool is_container = false;   // a list or an object, which no template prints on purpose
};

struct TemplateInput {
  jinja::Value variables;          // a dict
  std::vector<ValueOwner> owners;  // of its values, by their source
};

/// Variables that every conversation has alike: tokens and data.template_args. The names of a
/// conversation's own variables are left out.
using TemplateConstants = std::vector<std::pair<jinja::Value, jinja::Value>>;
TemplateConstants template_constants(const nlohmann::ordered_json& values);

TemplateInput template_input(const Conversation& conversation, const ContentForm& form,
                             bool generate, const TemplateConstants& constants);

}  // namespace lft::text
