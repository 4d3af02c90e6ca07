// Parts of a row's texts that a model misreads: special tokens, turn marks of the template,
// invisible characters.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/encode_options.h"
#include "src/text/tokenizer.h"

namespace lft::debug {

/// The tokenizer's special tokens except <image>, if a text may contain them, and the template's
/// text before a question and before an answer.
std::vector<std::string> text_marks(const text::Tokenizer& tokenizer,
                                    const data::EncodeOptions& options);

/// The `marks` that occur in the text, in order.
std::vector<std::string> marks_in(std::string_view text, const std::vector<std::string>& marks);

/// NUL and the controls of bidirectional text (U+202A to U+202E, U+2066 to U+2069) in the text,
/// each once: "U+202E".
std::vector<std::string> controls_in(std::string_view text);

}  // namespace lft::debug
