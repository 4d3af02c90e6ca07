// Rejects texts that are much longer than the model's positions before they are fully tokenised,
// which takes about 75 bytes of memory for each byte.
#pragma once
#include <cstdint>

#include "src/text/chat/conversation.h"
#include "src/text/tokenizer.h"

namespace lft::serve {

/// Throws BadRequest if the texts of the conversation certainly have more tokens than `positions`.
/// Tokenises only as many pieces as needed to be certain.
void check_length(const text::Conversation& conversation, const text::Tokenizer& tokenizer,
                  int64_t positions);

}  // namespace lft::serve
