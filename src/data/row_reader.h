// A dataset file as rows: splits JSON arrays and JSONL, recognises the format, names what is wrong
// where. Knows no tokens and no pixels.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/sample.h"
#include "src/io/json.h"

namespace lft::data {

/// Which keys a file's rows use. All rows of a file use the same.
struct RowKeys {
  std::string list, role, text;       // "conversations", "from", "value"
  bool other_roles = false;           // roles beyond human and gpt were met (ShareGPT)
  std::set<std::string> unused = {};  // names of keys that were met and are not used
  std::string format() const;         // "LLaVA", "ShareGPT", "OpenAI messages"
};

/// What an error of parse_row says where an answer is empty or the last one is missing.
inline constexpr const char* kEmptyAnswer = "an empty answer";
inline constexpr const char* kNoAnswer = "no answer: a sample ends with the assistant's message";

/// One JSON object -> Row. `keys` is set from the first row and compared with the others. Throws
/// kInput with `where`, for a key that is not used too unless `count_unknown`.
Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
              bool count_unknown = false);

struct RowFile {
  std::vector<Row> rows;         // a malformed row keeps its place, with its index as id
  std::map<int64_t, Error> bad;  // by row index; empty unless asked to keep them
  RowKeys keys;
};
/// With `keep_bad` a malformed row is kept in `bad`; a malformed file (empty, cut, formats mixed)
/// throws all the same. With `count_unknown` keys that are not used are one warning with their
/// names and numbers, else kInput.
RowFile read_row_file(const std::string& path, bool keep_bad, bool count_unknown = false);

/// What a row says, as canonical JSON (for hashes and prepared data), and back.
io::Json row_to_json(const Row& row);
Row row_from_json(const io::Json& json, const std::string& where);

}  // namespace lft::data
