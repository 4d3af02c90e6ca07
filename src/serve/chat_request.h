// A request for a chat completion, as OpenAI's API words it: read strictly, since what would be
// ignored would be answered otherwise than was asked.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/rows/row.h"
#include "src/io/json.h"

namespace lft::serve {

struct ChatRequest {
  std::string model;
  data::Row prompt;        // ends with a question; its images come with it
  int64_t max_tokens = 0;  // 0: as many as there is room for
  double temperature = 0, top_p = 1;
  int64_t top_k = 0;              // 0: all; vLLM's name, as the next
  double repetition_penalty = 1;  // of ids of the prompt and of the answer so far
  uint64_t seed = 0;
  std::vector<std::string> stop;  // up to 4 texts; an answer ends before the first of them
  bool stream = false, include_usage = false;
};

/// What is wrong with a request, and with which of its fields.
class BadRequest : public std::runtime_error {
 public:
  BadRequest(const std::string& message, std::string field)
      : std::runtime_error(message), field(std::move(field)) {}
  const std::string field;
};

/// What an error says of a request, in one line: without the place and the advice, which are a data
/// file's.
std::string message_of(const Error& error);

constexpr io::JsonLimits kRequestLimits{.max_bytes = 64u << 20, .max_depth = 16};

/// The body of POST /v1/chat/completions. Throws BadRequest. Images are data: URIs alone: no
/// request makes the server read a file or another machine.
ChatRequest read_chat_request(std::string_view body);

}  // namespace lft::serve
