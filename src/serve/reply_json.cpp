#include "src/serve/reply_json.h"

#include <algorithm>

#include "src/io/json.h"

namespace lft::serve {
namespace {

using io::Json;

std::string text_of(const Json& json) { return io::json_text(json); }

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json frame(const ReplyNames& names, bool is_chunk) {
  const char* const object = !names.is_chat ? "text_completion"
                             : is_chunk     ? "chat.completion.chunk"
                                            : "chat.completion";
  return {{"id", names.id}, {"object", object}, {"created", names.created}, {"model", names.model}};
}

/// JSON has no infinity.
double finite(double logprob) { return std::max(logprob, -9999.0); }

Json token_json(const ScoredText& token) {
  Json bytes = nullptr;
  if (token.bytes) {
    bytes = Json::array();
    for (const char byte : *token.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  }
  return {{"token", token.text}, {"logprob", finite(token.logprob)}, {"bytes", std::move(bytes)}};
}

Json chat_scores(const std::vector<ScoredToken>& scores) {
  Json content = Json::array();
  for (const ScoredToken& one : scores) {
    Json entry = token_json(one.token);
    entry["top_logprobs"] = Json::array();
    for (const ScoredText& other : one.top) entry["top_logprobs"].push_back(token_json(other));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_scores(const std::vector<ScoredToken>& scores) {
  Json tokens = Json::array(), values = tokens, tops = tokens, offsets = tokens;
  for (const ScoredToken& one : scores) {
    tokens.push_back(one.token.text);
    values.push_back(finite(one.token.logprob));
    offsets.push_back(one.offset);
    Json top = Json::object();
    for (const ScoredText& other : one.top) top.emplace(other.text, finite(other.logprob));
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json scores_json(const ReplyNames& names, const Scores& scores) {
  if (!scores) return nullptr;
  return names.is_chat ? chat_scores(*scores) : completion_scores(*scores);
}

std::string chunk(const ReplyNames& names, Json choice) {
  Json json = frame(names, true);
  json["choices"] = Json::array({std::move(choice)});
  return text_of(json);
}

Json entry(const ModelEntry& model, int64_t created) {
  Json json = {{"id", model.name}, {"object", "model"}, {"created", created}, {"owned_by", "lft"}};
  if (!model.parent.empty()) json["parent"] = model.parent;
  return json;
}

}  // namespace

std::string whole_reply(const ReplyNames& names, const std::vector<Choice>& choices,
                        const Usage& usage) {
  Json json = frame(names, false);
  json["choices"] = Json::array();
  for (const Choice& choice : choices) {
    Json one = {{"index", choice.index},
                {"logprobs", scores_json(names, choice.scores)},
                {"finish_reason", choice.finish}};
    if (names.is_chat)
      one["message"] = {{"role", "assistant"}, {"content", choice.text}};
    else
      one["text"] = choice.text;
    json["choices"].push_back(std::move(one));
  }
  json["usage"] = usage_json(usage);
  return text_of(json);
}

std::string role_chunk(const ReplyNames& names, size_t index) {
  return chunk(names, {{"index", index},
                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                       {"logprobs", nullptr},
                       {"finish_reason", nullptr}});
}

std::string text_chunk(const ReplyNames& names, const Choice& part) {
  Json choice = {{"index", part.index},
                 {"logprobs", scores_json(names, part.scores)},
                 {"finish_reason", nullptr}};
  if (names.is_chat)
    choice["delta"] = {{"content", part.text}};
  else
    choice["text"] = part.text;
  return chunk(names, std::move(choice));
}

std::string finish_chunk(const ReplyNames& names, size_t index, const std::string& finish) {
  Json choice = {{"index", index}, {"logprobs", nullptr}, {"finish_reason", finish}};
  if (names.is_chat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  return chunk(names, std::move(choice));
}

std::string usage_chunk(const ReplyNames& names, const Usage& usage) {
  Json json = frame(names, true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return text_of(json);
}

std::string model_list(const std::vector<ModelEntry>& models, int64_t created) {
  Json data = Json::array();
  for (const ModelEntry& model : models) data.push_back(entry(model, created));
  return text_of({{"object", "list"}, {"data", std::move(data)}});
}

std::string model_text(const ModelEntry& model, int64_t created) {
  return text_of(entry(model, created));
}

}  // namespace lft::serve
