// Fields of a request that this server does not have, with the values that change nothing of an
// answer here.
#pragma once
#include <string>

#include "src/io/json.h"

namespace lft::serve {

/// Whether the answer is the one that was asked for although the field is not looked at: because it
/// says nothing of the answer, or asks for what is done anyway, or for nothing.
bool is_neutral(const std::string& field, const io::Json& value);

}  // namespace lft::serve
