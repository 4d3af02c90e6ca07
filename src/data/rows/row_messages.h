// The messages of a row: LLaVA and ShareGPT (conversations of from/value or role/content), OpenAI
// (messages of role/content, with reasoning, tools and tool calls), TRL (prompt and completion).
#pragma once
#include <string>
#include <vector>

#include "src/data/rows/row_keys.h"
#include "src/data/rows/row_reader.h"
#include "src/text/chat/conversation.h"

namespace lft::data {

/// The keys that a row uses, from its structure alone. kInput where it has no dialogue.
RowKeys recognise(const io::Json& row, const std::string& where);

struct RowMessages {
  text::Conversation conversation;
  std::vector<std::string> images = {};  // that parts name, in order
};

/// The conversation of a row with these keys. After a system message come a user's and an
/// assistant's messages in turn; a tool's follow an answer that calls tools. kInput for what the
/// rules make bad. `ordered` is the row with its own order of keys, where that counts (tools).
RowMessages read_messages(const io::Json& row, RowKeys& keys, RowKeyCheck& check,
                          const RowRules& rules, const std::string& where,
                          const nlohmann::ordered_json* ordered);

/// Keys of a row that read_messages() uses.
std::vector<std::string> dialogue_keys(const RowKeys& keys);

}  // namespace lft::data
