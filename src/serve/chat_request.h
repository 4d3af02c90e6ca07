// A chat completion request of OpenAI's API.
#pragma once
#include <string_view>

#include "src/data/rows/row.h"
#include "src/serve/ask_fields.h"

namespace lft::serve {

struct ChatRequest {
  AskFields ask;
  data::Row prompt;  // the conversation to be answered, with its images and tools
};

/// The body of POST /v1/chat/completions. Throws BadRequest.
ChatRequest read_chat_request(std::string_view body);

}  // namespace lft::serve
