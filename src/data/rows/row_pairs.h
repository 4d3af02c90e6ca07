// Rows of preference pairs: one prompt and two answers, in the forms of TRL ("prompt", "chosen",
// "rejected": texts or messages), LLaMA-Factory ("conversations" or "messages", and "chosen",
// "rejected": one message each; or "instruction" or "question", and two texts) and ms-swift
// ("messages" with the chosen answer, and "rejected_response" or "rejected_messages",
// "rejected_images").
#pragma once
#include <optional>
#include <string>

#include "src/io/json.h"

namespace lft::data {

/// Each side as a row of the forms that parse_row() reads.
struct PairRows {
  io::Json chosen, rejected;
};

/// Whether a row has one of the keys of pairs with a value.
bool is_pair(const io::Json& row);
/// Splits a row of a pair. kInput if one of the sides is missing or the two differ in form.
PairRows split_pair(const io::Json& row, const std::string& where);

}  // namespace lft::data
