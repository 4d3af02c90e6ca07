#include "src/text/chat/template_input.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lft::text {
namespace {

using Json = nlohmann::ordered_json;
using Field = ValueOwner::Field;
using jinja::DictObject;
using jinja::Kind;
using jinja::ListObject;
using jinja::Text;
using jinja::Value;

Value key(std::string name) { return Value::of(Text(std::move(name))); }

/// Creates values and records the owner of each: a value's source is its owner's index.
class InputWriter {
 public:
  explicit InputWriter(std::vector<ValueOwner>& owners) : owners_(owners) {}

  Value text(std::string_view words, ValueOwner owner) {
    return Value::of(Text(std::string(words), add(owner)));
  }
  Value json(const Json& value, ValueOwner owner) {
    auto source = static_cast<int32_t>(owners_.size());
    own(value, owner);
    return Value::from_json(value, &source);
  }
  template <typename Fill>
  Value dict(ValueOwner owner, const Fill& fill) {
    owner.is_container = true;
    const int32_t source = add(owner);
    auto made = std::make_shared<DictObject>();
    fill(*made);
    for (const auto& entry : made->entries)
      made->depth = std::max(made->depth, entry.second.depth() + 1);
    return Value(Kind::kDict, std::move(made)).with_source(source);
  }
  template <typename Items, typename Make>
  Value list(ValueOwner owner, const Items& items, const Make& make) {
    owner.is_container = true;
    const int32_t source = add(owner);
    auto made = std::make_shared<ListObject>();
    made->items.reserve(items.size());
    for (const auto& item : items) {
      made->items.push_back(make(item));
      made->depth = std::max(made->depth, made->items.back().depth() + 1);
    }
    return Value(Kind::kList, std::move(made)).with_source(source);
  }

 private:
  int32_t add(ValueOwner owner) {
    owners_.push_back(owner);
    return static_cast<int32_t>(owners_.size()) - 1;
  }
  /// Assigns one owner to the value and all that it contains, in from_json()'s order.
  void own(const Json& value, ValueOwner owner) {
    owner.is_container = value.is_structured();
    add(owner);
    if (!value.is_structured()) return;
    for (const Json& inner : value) own(inner, owner);
  }

  std::vector<ValueOwner>& owners_;
};

/// A role is not part of the words: it has no source, and common roles share their values.
Value role_value(const std::string& role) {
  thread_local const std::array kRoles = {key("user"), key("assistant"), key("system"),
                                          key("tool")};
  const auto known = std::ranges::find(kRoles, role, &Value::bytes);
  return known != kRoles.end() ? *known : key(role);
}

Value content_of(const Message& message, bool as_list, ValueOwner words, InputWriter& writer) {
  if (!as_list) return writer.text(message.text, words);
  thread_local const Value kType = key("type"), kText = key("text"), kImage = key("image");
  const ValueOwner none{.message = words.message};
  std::vector<Part> parts = parts_of(message);
  if (parts.empty()) parts.push_back({.is_image = false, .text = ""});
  return writer.list(none, parts, [&](const Part& part) {
    return writer.dict(none, [&](DictObject& made) {
      made.entries.reserve(2);
      made.add(kType, part.is_image ? kImage : kText);
      if (!part.is_image) made.add(kText, writer.text(part.text, words));
    });
  });
}

Value message_value(const Message& message, int32_t number, const ContentForm& form,
                    InputWriter& writer) {
  thread_local const Value kRole = key("role"), kContent = key("content"),
                           kReasoning = key("reasoning_content"), kCalls = key("tool_calls"),
                           kCallId = key("tool_call_id"), kName = key("name");
  const ValueOwner none{.message = number}, words{.message = number, .field = Field::kWords},
      calls{.message = number, .field = Field::kWords, .is_call = true};
  // The content of a message that only calls tools is an empty text, which templates test for.
  const bool says_nothing = message.text.empty() && !message.tool_calls.empty();
  return writer.dict(none, [&](DictObject& made) {
    made.entries.reserve(3);
    made.add(kRole, role_value(message.role));
    made.add(kContent, content_of(message, form.of(message.role) && !says_nothing, words, writer));
    if (!message.reasoning.empty()) {
      made.add(kReasoning, writer.text(message.reasoning, words));
      if (!message.reasoning_key.empty() && message.reasoning_key != "reasoning_content")
        made.add(key(message.reasoning_key), writer.text(message.reasoning, words));
    }
    if (!message.tool_calls.empty())
      made.add(kCalls, writer.json(Json::parse(message.tool_calls), calls));
    if (!message.tool_call_id.empty()) made.add(kCallId, writer.text(message.tool_call_id, none));
    if (!message.name.empty()) made.add(kName, writer.text(message.name, none));
  });
}

}  // namespace

bool ContentForm::of(const std::string& role) const {
  return role == "system" ? system : role == "user" ? user : role == "assistant" ? assistant : tool;
}

TemplateConstants template_constants(const Json& values) {
  constexpr std::array<std::string_view, 4> kOwn = {"messages", "tools", "documents",
                                                    "add_generation_prompt"};
  TemplateConstants constants;
  for (const auto& [name, value] : values.items()) {
    int32_t nobody = -1;
    if (std::ranges::find(kOwn, name) == kOwn.end())
      constants.emplace_back(key(name), Value::from_json(value, &nobody));
  }
  return constants;
}

TemplateInput template_input(const Conversation& conversation, const ContentForm& form,
                             bool generate, const TemplateConstants& constants) {
  TemplateInput input;
  InputWriter writer(input.owners);
  input.variables = writer.dict({}, [&](DictObject& variables) {
    variables.entries.reserve(constants.size() + 4);
    for (const auto& [name, value] : constants) variables.add(name, value);
    thread_local const Value kMessages = key("messages"), kTools = key("tools"),
                             kDocuments = key("documents"),
                             kGenerate = key("add_generation_prompt");
    int32_t number = 0;
    variables.add(kMessages, writer.list({}, conversation.messages, [&](const Message& message) {
      return message_value(message, number++, form, writer);
    }));
    variables.add(kTools,
                  writer.json(conversation.tools.empty() ? Json() : Json::parse(conversation.tools),
                              {.field = Field::kTools}));
    variables.add(kDocuments, Value::none());
    variables.add(kGenerate, Value::of(generate));
  });
  return input;
}

}  // namespace lft::text
