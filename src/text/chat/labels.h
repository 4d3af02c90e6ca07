// Computes the supervised tokens from character spans. Independent of templates and ids.
#pragma once
#include <vector>

#include "src/text/chat/chat_template.h"
#include "src/text/tokenizer.h"

namespace lft::text {

/// True for a token that shares a byte with a supervised span; never for a token without bytes
/// (BOS). Spans are in order and do not overlap.
std::vector<bool> supervised_mask(const std::vector<Token>& tokens,
                                  const std::vector<Rendered::Span>& spans);

}  // namespace lft::text
