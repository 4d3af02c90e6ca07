// A dataset file as rows: parses each, recognises the format, names what is wrong where. Knows no
// tokens and no pixels.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/rows/row.h"
#include "src/data/rows/row_keys.h"
#include "src/data/rows/row_scan.h"
#include "src/io/json.h"

namespace lft::data {

/// Which keys a file's rows use. All rows of a file use the same.
struct RowKeys {
  std::string list, role, text;  // "conversations", "from", "value"; of two texts only "prompt"
  bool other_roles = false;      // roles beyond human and gpt were met (ShareGPT)
  std::set<std::string> unused = {};  // names of keys that were met and are not used
  bool unordered = false;             // the row's images are not in the order of their numbers
  /// "LLaVA", "ShareGPT", "OpenAI messages" or "TRL prompt and completion".
  std::string format() const;
};

/// What helps against an error of a row.
inline constexpr char kMendRow[] = "mend the row; data.on_bad_sample: skip leaves such rows out";

/// What an error of parse_row says where an answer is empty or the last one is missing.
inline constexpr const char* kEmptyAnswer = "an empty answer";
inline constexpr const char* kNoAnswer = "no answer: a sample ends with the assistant's message";

/// What becomes of rows that are not as training wants them.
struct RowRules {
  bool keep_bad = false;        // a malformed row keeps its place; else it is an error
  bool count_unknown = false;   // keys that are not used are counted; else one makes a row bad
  bool open_questions = false;  // a row may end with a question; else that makes it bad
};

/// One JSON object -> Row. `keys` is set from the first row and compared with the others. Throws
/// kInput with `where` for what the rules make bad. A question at the end has an empty answer.
/// `ordered` is the same row with its own order of keys, which counts in tools.
Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
              const RowRules& rules = {}, const nlohmann::ordered_json* ordered = nullptr);

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

/// A row as it was read. A malformed one keeps its place, with its index as id, and its error.
struct ReadRow {
  Row row;
  RowKeys keys;
  std::optional<Error> bad;
};
/// `members`: images that lie beside the row in a tar file.
ReadRow read_row(std::string_view text, const std::string& where, int64_t index,
                 const RowRules& rules, const std::vector<RowImage>* members = nullptr);

/// What the rows of a file have in common, told row by row in their order.
struct FileFormat {
  RowKeys keys;
  std::map<std::string, int64_t> unused = {};  // rows, by the name of a key that is not used
  int64_t unordered = 0;                       // rows with images that are not in order
  std::string first_unordered = {};            // where the first of them is
  /// kInput where the row's keys are not those of the rows before it.
  void add(const RowKeys& row, const std::string& where);
  /// The line that a file is opened with; a warning names the keys that are not used.
  void tell(const std::string& path, int64_t rows, RowForm form) const;
};

struct RowFile {
  std::vector<Row> rows;         // a malformed row keeps its place, with its index as id
  std::map<int64_t, Error> bad;  // by row index; empty unless asked to keep them
  RowKeys keys;
};
/// All rows at once, in memory. `shown`: what messages call the file; empty: its path. With
/// `keep_bad` a malformed row is kept in `bad`; a malformed file (empty, cut, formats mixed) throws
/// all the same. With `count_unknown` keys that are not used are one warning with their names and
/// numbers, else kInput.
RowFile read_row_file(const std::string& path, bool keep_bad, bool count_unknown = false,
                      const std::string& shown = "");

/// The rows of read_row_file(). kInput with file:line (JSON lines) or file[index] (array).
std::vector<Row> read_rows(const std::string& path);

/// What a row says, as canonical JSON (for hashes and prepared data), and back.
io::Json row_to_json(const Row& row);
Row row_from_json(const io::Json& json, const std::string& where);
/// The text of row_to_json without id and place: what a row says. And its sha256's first 8 bytes.
std::string said_text(const Row& row);
uint64_t said_hash(std::string_view said_text);

}  // namespace lft::data
