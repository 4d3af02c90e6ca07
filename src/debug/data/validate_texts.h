// What stands in the texts of a row that a model reads as something else: special tokens, the
// template's own marks of a turn, characters that nobody sees.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/text/tokenizer.h"

namespace lft::debug {

/// The tokenizer's special tokens but <image>, where a text may hold them, and what the template
/// writes before a question and before an answer.
std::vector<std::string> text_marks(const text::Tokenizer& tokenizer,
                                    const data::EncodeOptions& options);

/// Those of `marks` that stand in the text, in their order.
std::vector<std::string> marks_in(std::string_view text, const std::vector<std::string>& marks);

/// NUL and the controls of bidirectional text (U+202A to U+202E, U+2066 to U+2069) in the text,
/// each once: "U+202E".
std::vector<std::string> controls_in(std::string_view text);

}  // namespace lft::debug
