// The messages of a row: LLaVA and ShareGPT (conversations of from/value or role/content), OpenAI
// (messages of role/content, with reasoning, tools and tool calls), TRL (lists of messages in
// prompt and completion), and columns (row_columns.h).
#pragma once
#include <string>
#include <vector>

#include "src/data/rows/row_reader.h"

namespace lft::data {

/// The keys that a row uses, from its structure alone. kInput if it has no dialogue. A list of
/// messages is used in place of columns.
RowKeys recognise(const io::Json& row, const ColumnRules& rules, const std::string& where);

struct RowMessages {
  text::Conversation conversation;
  std::vector<std::string> images = {};   // named by parts, in order
  std::vector<std::string> answers = {};  // of a column that is a list of correct answers
};

/// The conversation of a row with these keys. After a system message, user's and assistant's
/// messages alternate; a tool's follow an answer that calls tools. kInput for rows that are bad by
/// the rules. `ordered` is the row with its original order of keys, for tools.
RowMessages read_messages(const io::Json& row, RowKeys& keys, RowKeyCheck& check,
                          const RowRules& rules, const std::string& where,
                          const nlohmann::ordered_json* ordered);

/// Keys of a row that read_messages() uses.
std::vector<std::string> dialogue_keys(const RowKeys& keys);

}  // namespace lft::data
