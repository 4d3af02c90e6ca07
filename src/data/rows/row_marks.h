// Texts of a row that stand for something else than their words: other tools' placeholders for
// images, and values that were written as JSON texts.
#pragma once
#include "src/data/rows/row.h"
#include "src/data/rows/row_keys.h"

namespace lft::data {

/// Of a row whose images are known. Placeholders count in the questions and the system text of a
/// row without an image, outside Markdown's code: <img>a.png</img>, <|image_1|>, [IMG], ![](a.png).
/// JSON texts are a list of parts, and texts in quotes where all messages are.
void look_for_marks(const Row& row, RowKeyCheck& check);

}  // namespace lft::data
