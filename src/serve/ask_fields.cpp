#include "src/serve/ask_fields.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/serve/chat_messages.h"
#include "src/serve/neutral_fields.h"

namespace lft::serve {
namespace {

using io::Json;

double number(const Json& value, const std::string& field, double low, double high) {
  if (!value.is_number())
    throw BadRequest(field + " is " + io::describe_json(value) + ", not a number", field,
                     code::kType);
  const double found = value.get<double>();
  if (std::isfinite(found) && found >= low && found <= high) return found;
  throw BadRequest(field + " is " + io::describe_json(value) + ", not a number from " +
                       io::describe_json(low) + " to " + io::describe_json(high),
                   field, code::kValue);
}

std::vector<std::string> stop_texts(const Json& value) {
  constexpr size_t kMost = 256, kMostBytes = 64u << 10;
  std::vector<std::string> stops;
  if (is_empty_value(value)) return stops;
  size_t bytes = 0;
  for (const Json& text : value.is_array() ? value : Json::array({value})) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      throw BadRequest("stop is a text or a list of texts, none of them empty; it has " +
                           io::describe_json(text),
                       "stop", code::kType);
    bytes += text.get_ref<const std::string&>().size();
    stops.push_back(text.get<std::string>());
  }
  if (stops.size() > kMost || bytes > kMostBytes)
    throw BadRequest("stop has " + std::to_string(stops.size()) + " texts of together " +
                         std::to_string(bytes) + " bytes (expected at most " +
                         std::to_string(kMost) + " texts and " + std::to_string(kMostBytes) +
                         " bytes)",
                     "stop", code::kValue);
  return stops;
}

/// Names of fields in other APIs.
std::string hint(const std::string& field) {
  if (field == "system") return "; write it as a first message of the role system";
  if (field == "prompt" || field == "input")
    return "; write it in messages, or send a prompt to /v1/completions";
  if (field == "messages") return "; send messages to /v1/chat/completions";
  if (field == "functions" || field == "function_call") return "; write functions as tools";
  if (field == "options") return "; write Ollama's options as fields of the request";
  if (field == "max_output_tokens" || field == "n_predict") return "; write it as max_tokens";
  if (field == "stop_sequences") return "; write it as stop";
  return "";
}

/// The name of the model; null is as if it were absent.
std::string model_name(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  throw BadRequest("model is " + io::describe_json(value) + " (expected a text)", "model",
                   code::kType);
}

/// The position and reason of a JSON error.
[[noreturn]] void refuse_json(const Error& error) {
  const ErrorInfo& info = error.info();
  throw BadRequest("the request is not read: " + info.what + " at " + info.where +
                       (info.found.empty() ? "" : ": " + info.found) +
                       (info.expected.empty() ? "" : " (expected " + info.expected + ")"),
                   "");
}

}  // namespace

int64_t whole_field(const Json& value, const std::string& field, int64_t low, int64_t high) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  std::optional<int64_t> found;
  if (fits) found = value.get<int64_t>();
  if (value.is_number_float()) {
    constexpr double kExact = 0x1p53;
    const double wide = value.get<double>();
    if (std::abs(wide) <= kExact && std::trunc(wide) == wide) found = static_cast<int64_t>(wide);
  }
  if (found && *found >= low && *found <= high) return *found;
  throw BadRequest(field + " is " + io::describe_json(value) + ", not a whole number from " +
                       std::to_string(low) + " to " + std::to_string(high),
                   field, value.is_number() ? code::kValue : code::kType);
}

bool truth_field(const Json& value, const std::string& field) {
  if (value.is_boolean()) return value.get<bool>();
  throw BadRequest(field + " is " + io::describe_json(value) + ", neither true nor false", field,
                   code::kType);
}

io::Json read_body(std::string_view body) {
  Json json;
  try {
    json = io::parse_json(body, "request", kRequestLimits);
  } catch (const Error& error) {
    refuse_json(error);
  }
  if (!json.is_object())
    throw BadRequest("the request is " + io::describe_json(json) + " (expected a JSON object)", "",
                     code::kType);
  return json;
}

bool take_field(const std::string& field, const Json& value, AskFields& ask) {
  if (field == "model") {
    ask.model = model_name(value);
  } else if (value.is_null() || field == "stream_options") {
    return true;
  } else if (field == "n") {
    ask.answers = whole_field(value, field, 1, kMostAnswers);
  } else if (field == "max_tokens" || field == "max_completion_tokens") {
    ask.max_tokens = whole_field(value, field, 1, 1 << 20);
  } else if (field == "temperature") {
    ask.temperature = number(value, field, 0, 2);
  } else if (field == "top_p") {
    ask.top_p = number(value, field, 1e-6, 1);
  } else if (field == "top_k") {  // in vLLM -1 also means all
    ask.top_k = std::max<int64_t>(0, whole_field(value, field, -1, 1 << 24));
  } else if (field == "repetition_penalty") {
    ask.repetition_penalty = number(value, field, 1e-3, 1e3);
  } else if (field == "seed") {
    ask.seed = static_cast<uint64_t>(whole_field(value, field, INT64_MIN, INT64_MAX));
  } else if (field == "stop") {
    ask.stop = stop_texts(value);
  } else if (field == "stream") {
    ask.stream = truth_field(value, field);
  } else {
    return false;
  }
  return true;
}

void read_stream_options(const Json& object, AskFields& ask) {
  const std::string field = "stream_options";
  const Json& options = member_or_null(object, field);
  if (options.is_null()) return;
  if (!options.is_object())
    throw BadRequest(field + " is " + io::describe_json(options) + " (expected an object)", field,
                     code::kType);
  if (!options.empty() && !ask.stream)
    throw BadRequest("stream_options without \"stream\": true", field, code::kValue);
  for (const auto& [key, value] : options.items()) {
    if (key == "include_usage")
      ask.include_usage = !value.is_null() && truth_field(value, "stream_options.include_usage");
    else if (key != "include_obfuscation" && !is_empty_value(value))
      throw BadRequest("stream_options." + escape_text(key, 60) +
                           " is not served here with this value: " + io::describe_json(value),
                       field, code::kUnsupported);
  }
}

void check_neutral(const std::string& field, const Json& value) {
  if (is_neutral(field, value)) return;
  throw BadRequest("the field " + escape_text(field, 60) + " is not served here with this value: " +
                       io::describe_json(value) + hint(field),
                   field, code::kUnsupported);
}

}  // namespace lft::serve
