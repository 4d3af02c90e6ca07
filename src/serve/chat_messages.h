// The messages of a request, as OpenAI's API, vLLM and SGLang write them. Any order of roles
// passes: the chat template decides what it takes.
#pragma once
#include "src/data/rows/row.h"
#include "src/io/json.h"

namespace lft::serve {

/// A conversation that ends where an answer is asked for; its images come with it. "<image>" in a
/// text is words. Throws BadRequest, which names the message and the part. Images are data: URIs
/// alone: no request makes the server read a file or another machine.
data::Row read_messages(const io::Json& messages);

}  // namespace lft::serve
