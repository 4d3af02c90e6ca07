#include "src/serve/chat_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "src/base/errors.h"
#include "src/serve/chat_messages.h"
#include "src/serve/neutral_fields.h"

namespace lft::serve {
namespace {

using io::Json;

constexpr std::array<std::string_view, 5> kReadLater = {"messages", "tools", "tool_choice",
                                                        "logprobs", "top_logprobs"};

/// The body with the keys of its objects in the order that the client has written, for templates,
/// which print tools and calls in that order. Null if it contains neither.
nlohmann::ordered_json in_order(std::string_view body) {
  if (body.find("\"tool") == std::string_view::npos && body.find("\\u") == std::string_view::npos)
    return nullptr;
  return nlohmann::ordered_json::parse(body);
}

void read_scores(const Json& json, AskFields& ask) {
  const Json& wanted = member_or_null(json, "logprobs");
  const bool scores = !wanted.is_null() && truth_field(wanted, "logprobs");
  const Json& top = member_or_null(json, "top_logprobs");
  const int64_t count = top.is_null() ? 0 : whole_field(top, "top_logprobs", 0, kMostTopScores);
  if (count > 0 && !scores)
    throw BadRequest("top_logprobs without \"logprobs\": true", "top_logprobs", code::kValue);
  if (scores) ask.top_scores = count;
}

/// Each is {"type": "function", "function": {"name": ..., ...}}.
void check_tools(const Json& tools) {
  if (!tools.is_array())
    throw BadRequest("tools is " + io::describe_json(tools) + " (expected a list of tools)",
                     "tools", code::kType);
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& name = member_or_null(member_or_null(tools[i], "function"), "name");
    if (member_or_null(tools[i], "type") == "function" && name.is_string()) continue;
    throw BadRequest(
        "tools[" + std::to_string(i) + "] is " + io::describe_json(tools[i]) +
            R"( (expected {"type": "function", "function": {"name": "...", "parameters": ...}}))",
        "tools", code::kValue);
  }
}

/// The tools as JSON in the client's order; "": none.
std::string read_tools(const Json& json, const nlohmann::ordered_json& ordered) {
  const Json& choice = member_or_null(json, "tool_choice");
  check_neutral("tool_choice", choice);
  const Json& tools = member_or_null(json, "tools");
  if (is_empty_value(tools)) return "";
  check_tools(tools);
  return choice == "none" ? "" : io::json_text(ordered.at("tools"));
}

}  // namespace

ChatRequest read_chat_request(std::string_view body) {
  const Json json = read_body(body);
  ChatRequest request;
  for (const auto& [field, value] : json.items()) {
    if (std::ranges::find(kReadLater, field) == kReadLater.end() &&
        !take_field(field, value, request.ask))
      check_neutral(field, value);
  }
  read_stream_options(json, request.ask);
  read_scores(json, request.ask);
  if (!json.contains("messages"))
    throw BadRequest("messages is missing", "messages", code::kMissing);
  const nlohmann::ordered_json ordered = in_order(body);
  request.prompt = read_messages(json["messages"], ordered);
  request.prompt.conversation.tools = read_tools(json, ordered);
  return request;
}

}  // namespace lft::serve
