#include "src/serve/completion_request.h"

#include "src/serve/chat_messages.h"

namespace lft::serve {
namespace {

using io::Json;

constexpr int64_t kDefaultTokens = 16;  // of OpenAI's API
constexpr const char* kPromptForm =
    " (expected a text, a list of token ids, or a list of texts or of such lists)";

[[noreturn]] void refuse_prompt(const std::string& place, const Json& value) {
  throw BadRequest(place + " is " + io::describe_json(value) + kPromptForm, "prompt", code::kType);
}

bool is_ids(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number_integer();
}

std::vector<int64_t> ids_of(const Json& list, const std::string& place) {
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    if (!id.is_number_integer()) refuse_prompt(place, list);
    ids.push_back(whole_field(id, "prompt", 0, INT32_MAX));
  }
  return ids;
}

void read_prompt(const Json& value, const std::string& place, CompletionRequest& request) {
  if (value.is_string())
    request.prompts.emplace_back(value.get<std::string>());
  else if (is_ids(value))
    request.prompts.emplace_back(ids_of(value, place));
  else
    refuse_prompt(place, value);
}

void read_prompts(const Json& prompt, CompletionRequest& request) {
  if (!prompt.is_array() || is_ids(prompt)) return read_prompt(prompt, "prompt", request);
  if (prompt.empty()) refuse_prompt("prompt", prompt);
  for (size_t i = 0; i < prompt.size(); ++i)
    read_prompt(prompt[i], "prompt[" + std::to_string(i) + "]", request);
  const int64_t answers = std::ssize(request.prompts) * request.ask.answers;
  if (answers <= kMostAnswers) return;
  throw BadRequest("the request asks for " + std::to_string(answers) +
                       " answers: prompts times n (expected at most " +
                       std::to_string(kMostAnswers) + ")",
                   "prompt", code::kValue);
}

}  // namespace

CompletionRequest read_completion_request(std::string_view body) {
  const Json json = read_body(body);
  CompletionRequest request;
  for (const auto& [field, value] : json.items()) {
    if (field == "prompt" || take_field(field, value, request.ask)) continue;
    if (field == "echo")
      request.echo = truth_field(value, field);
    else if (field == "logprobs" && value.is_number())  // vLLM reads false like null
      request.ask.top_scores = whole_field(value, field, 0, kMostTopScores);
    else
      check_neutral(field, value);
  }
  read_stream_options(json, request.ask);
  if (request.echo && request.ask.top_scores)
    throw BadRequest(
        "echo with logprobs is not served here: log-probabilities are those of new tokens; lft "
        "score computes those of given answers",
        "echo", code::kUnsupported);
  if (member_or_null(json, "prompt").is_null())
    throw BadRequest("prompt is missing", "prompt", code::kMissing);
  read_prompts(json["prompt"], request);
  if (request.ask.max_tokens == 0) request.ask.max_tokens = kDefaultTokens;
  return request;
}

}  // namespace lft::serve
