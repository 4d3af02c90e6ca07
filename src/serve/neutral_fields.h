// Fields of a request that this server does not support, and their values that do not change an
// answer.
#pragma once
#include <string>

#include "src/io/json.h"

namespace lft::serve {

/// Whether a value is null, false, or an empty text, list or object.
bool is_empty_value(const io::Json& value);

/// Whether ignoring the field does not change the answer: it does not concern the answer, or its
/// value is a default or empty.
bool is_neutral(const std::string& field, const io::Json& value);

}  // namespace lft::serve
