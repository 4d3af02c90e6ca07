// The messages of a request in the formats of OpenAI's API, vLLM and SGLang. Roles may have any
// order: the chat template decides what it accepts.
#pragma once
#include <string>

#include "src/data/rows/row.h"
#include "src/io/json.h"

namespace lft::serve {

/// A conversation to be answered, with its images. "<image>" in a text is plain text. Throws
/// BadRequest, which names the message and the part. Images are data: URIs only, so that a request
/// cannot make the server read a file or a URL. `ordered` is the request with its keys in the
/// client's order, for tool calls, or null if there are none.
data::Row read_messages(const io::Json& messages, const nlohmann::ordered_json& ordered);

/// `object[key]`, or null if `object` is not an object or does not have the key.
const io::Json& member_or_null(const io::Json& object, const std::string& key);

}  // namespace lft::serve
