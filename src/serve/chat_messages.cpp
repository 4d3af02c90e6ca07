#include "src/serve/chat_messages.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/rows/row_images.h"
#include "src/serve/bad_request.h"
#include "src/serve/neutral_fields.h"

namespace lft::serve {
namespace {

using io::Json;
using Ordered = nlohmann::ordered_json;

constexpr const char* kImageForm =
    R"({"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}})";

[[noreturn]] void refuse_at(const std::string& place, const std::string& what) {
  throw BadRequest(place + " " + what, "messages", code::kValue);
}

template <size_t kCount>
bool contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Keys that clients add and that do not change an answer.
constexpr std::array<std::string_view, 11> kAsides = {"id",
                                                      "name",
                                                      "cache_control",
                                                      "annotations",
                                                      "logprobs",
                                                      "index",
                                                      "model",
                                                      "metadata",
                                                      "provider_specific_fields",
                                                      "reasoning_details",
                                                      "timestamp"};

std::string text_at(const Json& object, const std::string& key, const std::string& place) {
  const Json& value = member_or_null(object, key);
  if (value.is_string()) return value.get<std::string>();
  refuse_at(place + "." + key, "is " + io::describe_json(value) + " (expected a text)");
}

/// All other keys must have empty values.
void check_keys(const Json& object, std::initializer_list<std::string_view> used,
                const std::string& place) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(used, key) != used.end() || contains(kAsides, key) ||
        is_empty_value(value))
      continue;
    if (key == "images")
      refuse_at(place + ".images", std::string("is Ollama's form of images (expected a part ") +
                                       kImageForm + " in content)");
    if (key == "source")
      refuse_at(place + ".source",
                std::string("is Anthropic's form of an image (expected ") + kImageForm + ")");
    refuse_at(place + "." + escape_text(key, 60),
              "is not served here: " + io::describe_json(value));
  }
}

/// The type of a part, or "" without a known key: clients may omit the type.
std::string type_of(const Json& part, const std::string& place) {
  const Json& type = member_or_null(part, "type");
  if (type.is_string()) return type.get<std::string>();
  if (!type.is_null())
    refuse_at(place + ".type", "is " + io::describe_json(type) + " (expected a text)");
  for (const char* key : {"text", "image_url", "image", "refusal"}) {
    if (part.contains(key)) return key;
  }
  return "";
}

/// The URL of an image part: {"url": ...} or a string.
std::string address_of(const Json& part, const std::string& place) {
  for (const char* key : {"image_url", "image", "url"}) {
    const Json& value = member_or_null(part, key);
    if (value.is_null()) continue;
    const std::string here = place + "." + key;
    if (!value.is_object()) return text_at(part, key, place);
    check_keys(value, {"url", "detail"}, here);
    return text_at(value, "url", here);
  }
  check_keys(part, {"type"}, place);
  refuse_at(place, std::string("is an image without an address (expected ") + kImageForm + ")");
}

data::RowImage read_image(const std::string& address, const std::string& place) {
  try {
    if (std::optional<data::RowImage> image = data::image_in_name(address, place))
      return std::move(*image);
  } catch (const Error& error) {
    const ErrorInfo& info = error.info();
    refuse_at(place, "is not read: " + info.what + ": " + info.found + " (expected " +
                         info.expected + ")");
  }
  const bool is_url = address.find("://") != std::string::npos;
  refuse_at(place, std::string("is ") + (is_url ? "a URL: " : "no data: URI: ") +
                       quote_text(address, 80) +
                       "; this server opens no addresses and no files (expected "
                       "data:image/png;base64,... with the image's bytes)");
}

class MessageReader {
 public:
  explicit MessageReader(const Ordered& ordered) : ordered_(ordered) {}

  data::Row read(const Json& messages) {
    if (!messages.is_array() || messages.empty())
      throw BadRequest("messages is " + io::describe_json(messages) +
                           " (expected a list of messages, at least one)",
                       "messages", code::kType);
    row_.id = row_.where = "request";
    for (size_t i = 0; i < messages.size(); ++i) read_message(messages[i], i);
    return std::move(row_);
  }

 private:
  void read_message(const Json& json, size_t number) {
    const std::string place = "messages[" + std::to_string(number) + "]";
    if (!json.is_object())
      refuse_at(place, "is " + io::describe_json(json) + " (expected an object)");
    text::Message message{.role = role_of(json, place), .text = "", .marks = {{}}};
    const bool answers = message.role == "assistant";
    if (answers) {
      check_keys(json,
                 {"role", "content", "refusal", "reasoning_content", "reasoning", "thinking",
                  "tool_calls"},
                 place);
      read_reasoning(json, place, message);
      read_calls(json, number, place, message);
    } else if (message.role == "tool") {
      check_keys(json, {"role", "content", "tool_call_id"}, place);
      if (!member_or_null(json, "tool_call_id").is_null())
        message.tool_call_id = text_at(json, "tool_call_id", place);
      if (!member_or_null(json, "name").is_null()) message.name = text_at(json, "name", place);
    } else {
      check_keys(json, {"role", "content"}, place);
    }
    const Json& content = member_or_null(json, "content");
    if (content.is_string()) {
      message.text = content.get<std::string>();
    } else if (content.is_array()) {
      for (size_t i = 0; i < content.size(); ++i)
        read_part(content[i], place + ".content[" + std::to_string(i) + "]", message);
    } else if (!content.is_null() || (!answers && message.role != "tool")) {
      refuse_at(place + ".content",
                "is " + io::describe_json(content) + " (expected a text, or a list of parts)");
    }
    if (answers && message.text.empty() && !member_or_null(json, "refusal").is_null())
      message.text = text_at(json, "refusal", place);
    row_.conversation.messages.push_back(std::move(message));
  }

  static std::string role_of(const Json& json, const std::string& place) {
    constexpr std::array<std::pair<std::string_view, const char*>, 6> kRoles = {
        {{"system", "system"},
         {"developer", "system"},
         {"user", "user"},
         {"assistant", "assistant"},
         {"tool", "tool"},
         {"function", "tool"}}};
    const Json& role = member_or_null(json, "role");
    for (const auto& [name, standard] : kRoles) {
      if (role == name) return standard;
    }
    refuse_at(place + ".role", "is " + io::describe_json(role) +
                                   " (expected system, developer, user, assistant or tool)");
  }

  static void read_reasoning(const Json& json, const std::string& place, text::Message& message) {
    for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
      if (is_empty_value(member_or_null(json, key)) || !message.reasoning.empty()) continue;
      message.reasoning = text_at(json, key, place);
      message.reasoning_key = key;
    }
  }

  void read_calls(const Json& json, size_t number, const std::string& place,
                  text::Message& message) {
    const Json& calls = member_or_null(json, "tool_calls");
    if (is_empty_value(calls)) return;
    if (!calls.is_array())
      refuse_at(place + ".tool_calls",
                "is " + io::describe_json(calls) + " (expected a list of calls)");
    Ordered ordered = ordered_.at("messages").at(number).at("tool_calls");
    for (Ordered& call : ordered) read_arguments(call);
    message.tool_calls = io::json_text(ordered);
  }

  /// OpenAI's clients send arguments as a text of JSON; templates take an object, as in vLLM.
  static void read_arguments(Ordered& call) {
    if (!call.is_object() || !call.contains("function")) return;
    Ordered& function = call.at("function");
    if (!function.is_object() || !function.contains("arguments")) return;
    Ordered& arguments = function.at("arguments");
    if (!arguments.is_string()) return;
    Ordered read = Ordered::parse(arguments.get_ref<const std::string&>(), nullptr,
                                  /*allow_exceptions=*/false);
    if (read.is_object()) arguments = std::move(read);
  }

  void read_part(const Json& part, const std::string& place, text::Message& message) {
    if (part.is_string()) return add_text(part.get<std::string>(), message);  // as in vLLM
    if (!part.is_object())
      refuse_at(place, "is " + io::describe_json(part) + " (expected an object)");
    const std::string type = type_of(part, place);
    if (type == "text" || type == "input_text" || type == "output_text") {
      check_keys(part, {"type", "text"}, place);
      add_text(text_at(part, "text", place), message);
    } else if (type == "refusal") {
      check_keys(part, {"type", "refusal"}, place);
      add_text(text_at(part, "refusal", place), message);
    } else if (type == "image_url" || type == "input_image" || type == "image") {
      check_keys(part, {"type", "image_url", "image", "url", "detail", "uuid"}, place);
      add_image(part, place, message);
    } else {
      refuse_at(place, (type.empty() ? "has no type" : "is of type " + quote_text(type, 60)) +
                           " (expected text, input_text, image_url or input_image)");
    }
  }

  static void add_text(const std::string& text, text::Message& message) {
    if (text.empty()) return;
    const bool after_image =
        !message.marks->empty() &&
        message.text.size() == message.marks->back() + text::kImageMark.size() + 1;
    if (!message.text.empty() && !after_image) message.cuts.push_back(message.text.size());
    message.text += text;
  }

  void add_image(const Json& part, const std::string& place, text::Message& message) {
    if (message.role != "user")
      refuse_at(place, "is an image in a message of " + message.role +
                           " (expected images in the user's messages)");
    data::RowImage image = read_image(address_of(part, place), place);
    row_.images.push_back(image.name);
    row_.inside.push_back(std::move(image));
    message.marks->push_back(message.text.size());
    message.text += std::string(text::kImageMark) + "\n";
  }

  const Ordered& ordered_;
  data::Row row_;
};

}  // namespace

const Json& member_or_null(const Json& object, const std::string& key) {
  static const Json kNull;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNull : *found;
}

data::Row read_messages(const Json& messages, const Ordered& ordered) {
  return MessageReader(ordered).read(messages);
}

}  // namespace lft::serve
