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
#include "src/io/json.h"

namespace lft::data {

/// Which keys a file's rows use. All rows of a file use the same.
struct RowKeys {
  std::string list, role, text;       // "conversations", "from", "value"
  bool other_roles = false;           // roles beyond human and gpt were met (ShareGPT)
  std::set<std::string> unused = {};  // names of keys that were met and are not used
  std::string format() const;         // "LLaVA", "ShareGPT", "OpenAI messages"
};

/// What helps against an error of a row.
inline constexpr char kMendRow[] = "mend the row; data.on_bad_sample: skip leaves such rows out";

/// What an error of parse_row says where an answer is empty or the last one is missing.
inline constexpr const char* kEmptyAnswer = "an empty answer";
inline constexpr const char* kNoAnswer = "no answer: a sample ends with the assistant's message";

/// One JSON object -> Row. `keys` is set from the first row and compared with the others. Throws
/// kInput with `where`, for a key that is not used too unless `count_unknown`.
Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
              bool count_unknown = false);

/// A row as it was read. A malformed one keeps its place, with its index as id, and its error.
struct ReadRow {
  Row row;
  RowKeys keys;
  std::optional<Error> bad;
};
ReadRow read_row(std::string_view text, const std::string& where, int64_t index,
                 bool count_unknown);

/// What the rows of a file have in common, told row by row in their order.
struct FileFormat {
  RowKeys keys;
  std::map<std::string, int64_t> unused = {};  // rows, by the name of a key that is not used
  /// kInput where the row's keys are not those of the rows before it.
  void add(const RowKeys& row, const std::string& where);
  /// The line that a file is opened with; a warning names the keys that are not used.
  void tell(const std::string& path, int64_t rows, bool is_array) const;
};

struct RowFile {
  std::vector<Row> rows;         // a malformed row keeps its place, with its index as id
  std::map<int64_t, Error> bad;  // by row index; empty unless asked to keep them
  RowKeys keys;
};
/// All rows at once, in memory. With `keep_bad` a malformed row is kept in `bad`; a malformed file
/// (empty, cut, formats mixed) throws all the same. With `count_unknown` keys that are not used are
/// one warning with their names and numbers, else kInput.
RowFile read_row_file(const std::string& path, bool keep_bad, bool count_unknown = false);

/// The rows of read_row_file(). kInput with file:line (JSON lines) or file[index] (array).
std::vector<Row> read_rows(const std::string& path);

/// What a row says, as canonical JSON (for hashes and prepared data), and back.
io::Json row_to_json(const Row& row);
Row row_from_json(const io::Json& json, const std::string& where);
/// The text of row_to_json without id and place: what a row says. And its sha256's first 8 bytes.
std::string said_text(const Row& row);
uint64_t said_hash(std::string_view said_text);

}  // namespace lft::data
