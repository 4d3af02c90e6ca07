// Rejects texts that are much longer than the model's positions before they are fully tokenised,
// which takes about 75 bytes of memory for each byte.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/tokenizer.h"

namespace lft::serve {

/// Throws BadRequest with a message that clients recognise. `size` is that of the prompt, "600
/// tokens".
[[noreturn]] void refuse_length(const std::string& size, int64_t positions,
                                const std::string& field);

/// Throws BadRequest, which names the field, if the texts certainly have more tokens than
/// `positions`. Special tokens in them are read as such with `special`, otherwise as text.
/// Tokenises only as many pieces as needed to be certain.
void check_length(const std::vector<std::string_view>& texts, bool special,
                  const text::Tokenizer& tokenizer, int64_t positions, const std::string& field);

}  // namespace lft::serve
