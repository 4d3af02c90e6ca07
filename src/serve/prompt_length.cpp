#include "src/serve/prompt_length.h"

#include <algorithm>

#include "src/serve/bad_request.h"

namespace lft::serve {

void refuse_length(const std::string& size, int64_t positions, const std::string& field) {
  throw BadRequest("the prompt has " + size +
                       ", which leaves no position for an answer: this "
                       "model's maximum context length is " +
                       std::to_string(positions) + " tokens",
                   field, code::kTooLong);
}

void check_length(const std::vector<std::string_view>& texts, bool special,
                  const text::Tokenizer& tokenizer, int64_t positions, const std::string& field) {
  constexpr int64_t kBytesOfToken = 4;  // on average; shorter texts are cheap to tokenise
  constexpr size_t kPiece = 64u << 10;
  constexpr int64_t kCut = 64;  // tokens that a piece may have more than the same text in one piece
  int64_t bytes = 0, tokens = 0;
  for (const std::string_view text : texts) bytes += std::ssize(text);
  if (bytes <= kBytesOfToken * positions) return;
  for (std::string_view rest : texts) {
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, kPiece);
      const auto all = static_cast<uint32_t>(piece.size());
      const auto ids =
          std::ssize(special ? tokenizer.encode(piece)
                             : tokenizer.encode_with_plain(piece, {{.begin = 0, .end = all}}));
      tokens += std::max<int64_t>(0, ids - kCut);
      rest.remove_prefix(piece.size());
      if (tokens <= positions) continue;
      refuse_length("more than " + std::to_string(tokens) + " tokens in " + std::to_string(bytes) +
                        " bytes of text",
                    positions, field);
    }
  }
}

}  // namespace lft::serve
