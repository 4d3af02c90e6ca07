// The responses of OpenAI's chat completions and completions, as JSON. Plain data and text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lft::serve {

struct ReplyNames {
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  bool is_chat = true;  // otherwise a completion
};
struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;  // including the end token
};

struct ScoredText {
  std::string text;                  // the token's name for a client
  std::optional<std::string> bytes;  // perhaps a part of a character; empty: a special token, which
                                     // is not part of the answer
  double logprob = 0;
};
struct ScoredToken {
  ScoredText token;
  std::vector<ScoredText> top = {};
  int64_t offset = 0;  // in characters of the answer
};
using Scores = std::optional<std::vector<ScoredToken>>;  // empty: not requested

/// An answer, or a new part of it.
struct Choice {
  size_t index = 0;
  std::string text = {};
  Scores scores = {};
  std::string finish = {};  // "stop", "length", or empty in a stream
};

std::string whole_reply(const ReplyNames& names, const std::vector<Choice>& choices,
                        const Usage& usage);
/// Events of a stream: role (chat only), text, finish reason, usage.
std::string role_chunk(const ReplyNames& names, size_t index);
std::string text_chunk(const ReplyNames& names, const Choice& part);
std::string finish_chunk(const ReplyNames& names, size_t index, const std::string& finish);
std::string usage_chunk(const ReplyNames& names, const Usage& usage);

/// GET /v1/models, and one of them. An adapter names its base as `parent`.
struct ModelEntry {
  std::string name, parent = {};
};
std::string model_list(const std::vector<ModelEntry>& models, int64_t created);
std::string model_text(const ModelEntry& model, int64_t created);

}  // namespace lft::serve
