// Rows without a list of messages, whose columns are a question and an answer: with images, a
// system text, earlier turns or choices; or an image and its caption.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/data/rows/row_messages.h"

namespace lft::data {

/// RowKeys::list of such a row. Its `role` is the column of the question ("" for a caption), its
/// `text` that of the answer ("" for a question without one).
inline constexpr char kColumns[] = "columns";

/// The columns of a row; empty if it has no question and no caption. kInput if two columns may be
/// the question, or the answer, and `rules` selects none.
std::optional<RowKeys> find_columns(const io::Json& row, const ColumnRules& rules,
                                    const std::string& where);
/// kInput: no messages, and no columns that lft reads. Suggests data.columns.
[[noreturn]] void refuse_columns(const io::Json& row, const std::string& where);

/// The columns that read_columns() uses.
std::vector<std::string> column_keys(const RowKeys& keys);
/// The texts of a list of answers: texts, numbers, or VQA's objects with "answer".
std::vector<std::string> answer_texts(const io::Json& list, const std::string& key,
                                      const std::string& where);
/// The messages of such a row.
void read_columns(const io::Json& row, RowKeys& keys, RowKeyCheck& check, bool learnt,
                  const RowRules& rules, const std::string& where, RowMessages& out);

/// Completes a row whose images are known: an <image> and a line break for each of them before the
/// first question, unless a question has one. kInput for a caption without an image, and for a row
/// without an image in which a column that is not used has the name of an image file.
void complete_columns(Row& row, const io::Json& json, const RowKeys& keys);

}  // namespace lft::data
