// Texts of a row that stand for something else than their words: other tools' placeholders for
// images, and values that were written as JSON texts.
#pragma once
#include "src/data/rows/row.h"
#include "src/data/rows/row_keys.h"

namespace lft::data {

/// Of a row whose images are known. Placeholders count in the questions and the system text of a
/// row without an image, outside Markdown's code: <img>a.png</img>, <|image_1|>, [IMG], ![](a.png).
/// JSON texts are a list of parts, and texts in quotes where all messages are.
/// Placeholders that some tokenizers have as tokens count `with_tokens` alone.
void look_for_marks(const Row& row, RowKeyCheck& check, bool with_tokens);

/// Those in the questions and the system text of a row without an image: <|image_pad|>. They are
/// words where the tokenizer at hand does not have them.
std::vector<std::string> token_marks(const Row& row);

}  // namespace lft::data
