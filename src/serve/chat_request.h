// A request for a chat completion, as OpenAI's API words it: read strictly, since what would be
// ignored would be answered otherwise than was asked.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/rows/row.h"
#include "src/io/json.h"
#include "src/serve/bad_request.h"

namespace lft::serve {

struct ChatRequest {
  std::string model;       // "": the one that is served
  data::Row prompt;        // ends where an answer is asked for; its images come with it
  int64_t max_tokens = 0;  // 0: as many as there is room for
  double temperature = 0, top_p = 1;
  int64_t top_k = 0;              // 0: all; vLLM's name, as the next
  double repetition_penalty = 1;  // of ids of the prompt and of the answer so far
  std::optional<uint64_t> seed;   // nothing: each answer is a new draw
  std::vector<std::string> stop;  // an answer ends before the first of them
  bool stream = false, include_usage = false;
};

/// What an error says of a request, in one line: without the place and the advice, which are a data
/// file's.
std::string message_of(const Error& error);

constexpr io::JsonLimits kRequestLimits{.max_bytes = 64u << 20, .max_depth = 16};

/// The body of POST /v1/chat/completions. Throws BadRequest.
ChatRequest read_chat_request(std::string_view body);

}  // namespace lft::serve
