#include "src/serve/chat_reply.h"

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

Json frame(const ReplyNames& names, const char* object) {
  return {{"id", names.id}, {"object", object}, {"created", names.created}, {"model", names.model}};
}

std::string chunk(const ReplyNames& names, const Json& delta, const Json& finish) {
  Json json = frame(names, "chat.completion.chunk");
  json["choices"] = Json::array(
      {{{"index", 0}, {"delta", delta}, {"logprobs", nullptr}, {"finish_reason", finish}}});
  return text_of(json);
}

}  // namespace

std::string whole_reply(const ReplyNames& names, const std::string& text, const std::string& finish,
                        const Usage& usage) {
  Json json = frame(names, "chat.completion");
  json["choices"] = Json::array({{{"index", 0},
                                  {"message", {{"role", "assistant"}, {"content", text}}},
                                  {"logprobs", nullptr},
                                  {"finish_reason", finish}}});
  json["usage"] = usage_json(usage);
  return text_of(json);
}

std::string first_chunk(const ReplyNames& names) {
  return chunk(names, {{"role", "assistant"}, {"content", ""}}, nullptr);
}

std::string text_chunk(const ReplyNames& names, const std::string& text) {
  return chunk(names, {{"content", text}}, nullptr);
}

std::string last_chunk(const ReplyNames& names, const std::string& finish) {
  return chunk(names, Json::object(), finish);
}

std::string usage_chunk(const ReplyNames& names, const Usage& usage) {
  Json json = frame(names, "chat.completion.chunk");
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return text_of(json);
}

std::string model_list(const std::string& name, int64_t created) {
  const Json model = {{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "lft"}};
  return text_of({{"object", "list"}, {"data", Json::array({model})}});
}

}  // namespace lft::serve
