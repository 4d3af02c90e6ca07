// A completion request of OpenAI's older API: prompts as they are, without a chat template.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/serve/ask_fields.h"

namespace lft::serve {

struct CompletionRequest {
  AskFields ask;
  std::vector<std::variant<std::string, std::vector<int64_t>>> prompts;  // texts or token ids
  bool echo = false;  // the text of the prompt begins the answer
};

/// The body of POST /v1/completions. Throws BadRequest.
CompletionRequest read_completion_request(std::string_view body);

}  // namespace lft::serve
