// A chat completion request of OpenAI's API. Unknown fields are rejected, because ignoring one
// could change the answer.
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
  std::string model;       // "": the served model
  data::Row prompt;        // the conversation to be answered, with its images
  int64_t max_tokens = 0;  // 0: as many as fit
  double temperature = 0, top_p = 1;
  int64_t top_k = 0;              // 0: all; vLLM's name, like the next
  double repetition_penalty = 1;  // for ids of the prompt and of the answer so far
  std::optional<uint64_t> seed;   // not set: each answer is a new sample
  std::vector<std::string> stop;  // texts that end an answer
  bool stream = false, include_usage = false;
};

/// An error of a request in one line, without place and advice, which refer to data files.
std::string message_of(const Error& error);

constexpr io::JsonLimits kRequestLimits{.max_bytes = 64u << 20, .max_depth = 16};

/// The body of POST /v1/chat/completions. Throws BadRequest.
ChatRequest read_chat_request(std::string_view body);

}  // namespace lft::serve
