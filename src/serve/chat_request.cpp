#include "src/serve/chat_request.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/text.h"
#include "src/data/rows/row_images.h"
#include "src/data/rows/row_reader.h"

namespace lft::serve {
namespace {

using io::Json;

constexpr const char* kMessages = "messages";

/// Fields that change nothing of the answer.
bool says_nothing(const std::string& field) {
  constexpr std::array<std::string_view, 8> kNames = {"user",
                                                      "metadata",
                                                      "store",
                                                      "service_tier",
                                                      "safety_identifier",
                                                      "verbosity",
                                                      "prompt_cache_key",
                                                      "parallel_tool_calls"};
  return std::ranges::find(kNames, field) != kNames.end();
}

/// Values of fields that ask for no more than is there without them.
bool is_plain(const std::string& field, const Json& value) {
  if (value.is_null()) return true;
  if (field == "n") return value == 1;
  if (field == "frequency_penalty" || field == "presence_penalty") return value == 0;
  if (field == "logprobs") return value == false;
  if (field == "top_logprobs") return value == 0;
  if (field == "logit_bias") return value.is_object() && value.empty();
  if (field == "tools" || field == "functions") return value.is_array() && value.empty();
  if (field == "tool_choice" || field == "function_call") return value == "none" || value == "auto";
  if (field == "modalities") return value == Json::array({"text"});
  if (field == "response_format") return value.is_object() && value.value("type", "") == "text";
  return false;
}

double number(const Json& value, const std::string& field, double low, double high) {
  if (!value.is_number())
    throw BadRequest(field + " is " + io::describe_json(value) + ", not a number", field);
  const double found = value.get<double>();
  if (std::isfinite(found) && found >= low && found <= high) return found;
  throw BadRequest(field + " is " + io::describe_json(value) + ", not a number from " +
                       io::describe_json(low) + " to " + io::describe_json(high),
                   field);
}

int64_t whole(const Json& value, const std::string& field, int64_t low, int64_t high) {
  const bool is_whole =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (is_whole && value.get<int64_t>() >= low && value.get<int64_t>() <= high)
    return value.get<int64_t>();
  throw BadRequest(field + " is " + io::describe_json(value) + ", not a whole number from " +
                       std::to_string(low) + " to " + std::to_string(high),
                   field);
}

bool truth(const Json& value, const std::string& field) {
  if (value.is_boolean()) return value.get<bool>();
  throw BadRequest(field + " is " + io::describe_json(value) + ", neither true nor false", field);
}

std::vector<std::string> stop_texts(const Json& value) {
  constexpr size_t kMost = 4;
  const Json list = value.is_array() ? value : Json::array({value});
  std::vector<std::string> stops;
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      throw BadRequest("stop is a text or a list of texts, none of them empty", "stop");
    stops.push_back(text.get<std::string>());
  }
  if (stops.size() > kMost) throw BadRequest("stop holds more than 4 texts", "stop");
  return stops;
}

/// The messages as a row of a data file would have them that ends with a question.
void read_messages(Json messages, ChatRequest& request) {
  if (!messages.is_array() || messages.empty())
    throw BadRequest("messages is no list of messages", kMessages);
  if (!messages.back().is_object() || messages.back().value("role", Json()) != "user")
    throw BadRequest("the last message is not the user's", kMessages);
  for (Json& message : messages) {
    if (!message.is_object()) continue;
    message.erase("name");
    if (!message.contains("content") || !message["content"].is_array()) continue;
    for (Json& part : message["content"]) {
      if (part.is_object() && part.contains("image_url") && part["image_url"].is_object())
        part["image_url"].erase("detail");
    }
  }
  try {
    data::RowKeys keys;
    request.prompt = data::parse_row({{kMessages, std::move(messages)}, {"id", "request"}},
                                     "request", 0, keys, {.open_questions = true});
  } catch (const Error& error) {
    throw BadRequest(message_of(error), kMessages);
  }
  for (const std::string& image : request.prompt.images) {
    if (!data::comes_with_row(image))
      throw BadRequest("an image is no data: URI; files and addresses are not read", kMessages);
  }
}

void take(const std::string& field, const Json& value, ChatRequest& request) {
  if (field == "model" && value.is_string()) {
    request.model = value.get<std::string>();
  } else if (field == "max_tokens" || field == "max_completion_tokens") {
    if (!value.is_null()) request.max_tokens = whole(value, field, 1, 1 << 20);
  } else if (field == "temperature") {
    if (!value.is_null()) request.temperature = number(value, field, 0, 2);
  } else if (field == "top_p") {
    if (!value.is_null()) request.top_p = number(value, field, 1e-6, 1);
  } else if (field == "top_k") {  // vLLM writes all as -1, too
    if (!value.is_null()) request.top_k = std::max<int64_t>(0, whole(value, field, -1, 1 << 24));
  } else if (field == "repetition_penalty") {
    if (!value.is_null()) request.repetition_penalty = number(value, field, 1e-3, 1e3);
  } else if (field == "seed") {
    if (!value.is_null())
      request.seed = static_cast<uint64_t>(whole(value, field, INT64_MIN, INT64_MAX));
  } else if (field == "stop") {
    if (!value.is_null()) request.stop = stop_texts(value);
  } else if (field == "stream") {
    if (!value.is_null()) request.stream = truth(value, field);
  } else if (field == "stream_options") {
    if (value.is_object() && value.contains("include_usage"))
      request.include_usage = truth(value["include_usage"], "stream_options.include_usage");
  } else if (!says_nothing(field) && !is_plain(field, value)) {
    throw BadRequest(
        "the field " + field + " is not served here with this value: " + io::describe_json(value),
        field);
  }
}

}  // namespace

std::string message_of(const Error& error) {
  const ErrorInfo& info = error.info();
  return info.what + (info.found.empty() ? "" : ": " + info.found) +
         (info.expected.empty() ? "" : " (expected " + info.expected + ")");
}

ChatRequest read_chat_request(std::string_view body) {
  Json json;
  try {
    json = io::parse_json(body, "request", kRequestLimits);
  } catch (const Error& error) {
    throw BadRequest("the request is no JSON: " + error.info().what, "");
  }
  if (!json.is_object()) throw BadRequest("the request is no JSON object", "");
  if (!json.contains(kMessages)) throw BadRequest("messages is missing", kMessages);
  if (!json.contains("model") || !json["model"].is_string())
    throw BadRequest("model is missing or no text", "model");
  ChatRequest request;
  for (const auto& [field, value] : json.items()) {
    if (field != kMessages) take(field, value, request);
  }
  read_messages(std::move(json[kMessages]), request);
  return request;
}

}  // namespace lft::serve
