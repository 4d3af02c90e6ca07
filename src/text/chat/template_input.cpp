#include "src/text/chat/template_input.h"

namespace lft::text {
namespace {

using Json = nlohmann::ordered_json;
using Field = ValueOwner::Field;

Json content_of(const Message& message, bool as_list) {
  if (!as_list) return message.text;
  Json parts = Json::array();
  for (const Part& part : parts_of(message)) {
    if (part.is_image)
      parts.push_back({{"type", "image"}});
    else
      parts.push_back({{"type", "text"}, {"text", part.text}});
  }
  if (parts.empty()) parts.push_back({{"type", "text"}, {"text", ""}});
  return parts;
}

Json message_json(const Message& message, const ContentForm& form) {
  // Of a message that only calls tools the content is an empty text, which templates test for.
  const bool says_nothing = message.text.empty() && !message.tool_calls.empty();
  Json json = {{"role", message.role},
               {"content", content_of(message, form.of(message.role) && !says_nothing)}};
  if (!message.reasoning.empty()) {
    json["reasoning_content"] = message.reasoning;
    if (!message.reasoning_key.empty()) json[message.reasoning_key] = message.reasoning;
  }
  if (!message.tool_calls.empty()) json["tool_calls"] = Json::parse(message.tool_calls);
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) json["name"] = message.name;
  return json;
}

/// Gives the value and all that it contains one owner.
void own(const Json& value, ValueOwner owner, std::vector<ValueOwner>& owners) {
  owner.is_container = value.is_structured();
  owners.push_back(owner);
  if (!value.is_structured()) return;
  for (const Json& inner : value) own(inner, owner, owners);
}

void own_message(const Json& message, int32_t number, std::vector<ValueOwner>& owners) {
  owners.push_back({.message = number, .is_container = true});
  for (const auto& [key, value] : message.items()) {
    const bool is_words = key != "role" && key != "tool_call_id" && key != "name";
    const ValueOwner owner{.message = number, .field = is_words ? Field::kWords : Field::kNone};
    if (key != "content" || !value.is_array()) {
      own(value, owner, owners);
      continue;
    }
    owners.push_back({.message = number, .is_container = true});
    for (const Json& part : value) {
      owners.push_back({.message = number, .is_container = true});
      for (const auto& [name, inner] : part.items())
        own(inner, name == "text" ? owner : ValueOwner{.message = number}, owners);
    }
  }
}

}  // namespace

bool ContentForm::of(const std::string& role) const {
  return role == "system" ? system : role == "user" ? user : role == "assistant" ? assistant : tool;
}

TemplateInput template_input(const Conversation& conversation, const ContentForm& form,
                             bool generate, const Json& constants) {
  TemplateInput input{.variables = constants, .owners = {{.is_container = true}}};
  Json& variables = input.variables;
  Json messages = Json::array();
  for (const Message& message : conversation.messages)
    messages.push_back(message_json(message, form));
  variables["messages"] = std::move(messages);
  variables["tools"] = conversation.tools.empty() ? Json() : Json::parse(conversation.tools);
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = generate;
  for (const auto& [key, value] : variables.items()) {
    if (key != "messages") {
      own(value, {.field = key == "tools" ? Field::kTools : Field::kNone}, input.owners);
      continue;
    }
    input.owners.push_back({.is_container = true});
    int32_t number = 0;
    for (const Json& message : value) own_message(message, number++, input.owners);
  }
  return input;
}

}  // namespace lft::text
