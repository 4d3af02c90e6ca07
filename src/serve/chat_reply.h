// The responses of OpenAI's chat completions API, as JSON.
#pragma once
#include <cstdint>
#include <string>

namespace lft::serve {

struct ReplyNames {
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
};
struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;  // including the end token
};

std::string whole_reply(const ReplyNames& names, const std::string& text, const std::string& finish,
                        const Usage& usage);
/// Events of a stream: role, text, finish reason, usage.
std::string first_chunk(const ReplyNames& names);
std::string text_chunk(const ReplyNames& names, const std::string& text);
std::string last_chunk(const ReplyNames& names, const std::string& finish);
std::string usage_chunk(const ReplyNames& names, const Usage& usage);
/// GET /v1/models.
std::string model_list(const std::string& name, int64_t created);

}  // namespace lft::serve
