// Refuses texts that are far longer than the model's positions before they are tokenised as a
// whole, which takes about 75 bytes of memory for each of theirs.
#pragma once
#include <cstdint>

#include "src/text/chat/conversation.h"
#include "src/text/tokenizer.h"

namespace lft::serve {

/// Throws BadRequest where the conversation's texts have certainly more tokens than `positions`.
/// Looks at pieces of them, and at no more than it takes to be certain.
void check_length(const text::Conversation& conversation, const text::Tokenizer& tokenizer,
                  int64_t positions);

}  // namespace lft::serve
