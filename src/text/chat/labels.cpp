#include "src/text/chat/labels.h"

namespace lft::text {

std::vector<bool> supervised_mask(const std::vector<Token>& tokens,
                                  const std::vector<Rendered::Span>& spans) {
  std::vector<bool> mask(tokens.size(), false);
  size_t span = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    while (span < spans.size() && spans[span].end <= tokens[i].begin) ++span;
    if (span == spans.size()) break;
    mask[i] = tokens[i].begin < tokens[i].end && tokens[i].end > spans[span].begin &&
              spans[span].begin < spans[span].end;
  }
  return mask;
}

}  // namespace lft::text
