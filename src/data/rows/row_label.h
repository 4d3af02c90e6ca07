// The label of a row of KTO: whether its answer is desirable, in the forms of TRL and ms-swift
// ("label") and of LLaMA-Factory ("kto_tag").
#pragma once
#include <string>

#include "src/io/json.h"

namespace lft::data {

/// Removes the label from the row and returns it. kInput if there is none, if it is neither true
/// nor false, if two labels differ, or if the row is a pair.
bool take_label(io::Json& row, const std::string& where);

}  // namespace lft::data
