// Texts of a row that are not meant literally: placeholders of other tools for images, and values
// that were written as JSON texts.
#pragma once
#include "src/data/rows/row.h"
#include "src/data/rows/row_keys.h"

namespace lft::data {

/// Checks a row whose images are known. Placeholders are searched in the questions and the system
/// text of a row without an image, outside Markdown's code: <img>a.png</img>, <|image_1|>, [IMG],
/// ![](a.png). JSON texts are lists of parts, and texts in quotes where all messages are.
/// Placeholders that are tokens of some tokenizers are searched only with `with_tokens`.
void look_for_marks(const Row& row, RowKeyCheck& check, bool with_tokens);

/// The placeholders such as <|image_pad|> in the questions and the system text of a row without an
/// image. They are plain words for a tokenizer that does not have them as tokens.
std::vector<std::string> token_marks(const Row& row);

}  // namespace lft::data
