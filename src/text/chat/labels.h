// Which tokens are supervised, from character spans. Knows no templates and no ids.
#pragma once
#include <vector>

#include "src/text/chat/chat_template.h"
#include "src/text/tokenizer.h"

namespace lft::text {

/// True for a token that shares a byte with a supervised span; a token without bytes (BOS) never
/// is. Spans are in order and do not overlap.
std::vector<bool> supervised_mask(const std::vector<Token>& tokens,
                                  const std::vector<Rendered::Span>& spans);

}  // namespace lft::text
