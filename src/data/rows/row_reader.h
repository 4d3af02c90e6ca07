// The rows of a data file: each is parsed, its format is detected, and errors name its location.
// Independent of tokens and pixels.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/rows/column_rules.h"
#include "src/data/rows/row.h"
#include "src/data/rows/row_keys.h"
#include "src/data/rows/row_scan.h"
#include "src/io/json.h"

namespace lft::data {

/// The keys used by a file's rows. All rows of a file use the same keys.
struct RowKeys {
  std::string list, role, text;         // "conversations", "from", "value"; see also kColumns
  bool other_roles = false;             // roles other than human and gpt were found (ShareGPT)
  std::set<std::string> unused = {};    // names of unused keys that were found
  bool unordered = false;               // the row's images are not in the order of their numbers
  std::vector<std::string> reads = {};  // the columns that are read, of a row of columns
  std::set<std::string> mapped = {};    // the columns that data.columns names
  /// "format LLaVA", "format ShareGPT", "format OpenAI messages", "format TRL prompt and
  /// completion", or "rows of " and the columns.
  std::string format() const;
};

/// The advice for an error of a row.
inline constexpr char kFixRow[] = "fix the row; data.on_bad_sample: skip leaves such rows out";

/// Messages of parse_row() for an empty answer and for a missing last one.
inline constexpr const char* kEmptyAnswer = "an empty answer";
inline constexpr const char* kNoAnswer = "no answer: a sample ends with the assistant's message";

/// The treatment of rows that cannot be trained on.
struct RowRules {
  bool keep_bad = false;        // a malformed row keeps its index; otherwise it is an error
  bool count_unknown = false;   // unused keys are counted; otherwise one makes a row bad
  bool count_marks = false;     // and so are marks of other tools in texts
  bool open_questions = false;  // a row may end with a question; otherwise that makes it bad
  bool pairs = false;           // each row is a pair of answers (row_pairs.h)
  bool labelled = false;        // each row has a label of its answer (row_label.h)
  bool all_members = true;      // a row without names shows all images of its tar file's sample
  ColumnRules columns = {};
};

/// One JSON object -> Row. `keys` is set from the first row and compared with the others. Throws
/// kInput with `where` for rows that are bad by the rules. A question at the end has an empty
/// answer. `ordered` is the same row with its original order of keys, which matters in tools.
Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
              const RowRules& rules = {}, const nlohmann::ordered_json* ordered = nullptr);

/// A row as it was read. A malformed one keeps its position, with its index as id, and its error.
struct ReadRow {
  Row row;
  RowKeys keys;
  std::optional<Error> bad;
};
/// `members`: the images of the row's sample in a tar file.
ReadRow read_row(std::string_view text, const std::string& where, int64_t index,
                 const RowRules& rules, const std::vector<RowImage>* members = nullptr);
/// A row of a batch.
ReadRow read_row(const RowBatch& batch, size_t i, const std::string& where, int64_t index,
                 const RowRules& rules);

/// The properties that the rows of a file have in common, collected row by row in their order.
struct FileFormat {
  RowKeys keys;
  std::map<std::string, int64_t> unused = {};  // rows, by the name of a key that is not used
  int64_t unordered = 0;                       // rows with images that are not in order
  std::string first_unordered = {};            // location of the first of them
  /// kInput if the row's keys differ from those of the rows before it.
  void add(const RowKeys& row, const std::string& where);
  /// kInput if some of the columns that data.columns names are in no row, and others are.
  void check_columns(const ColumnRules& rules, const std::string& path) const;
  /// Logs the format of the file in a line; a warning names the unused keys.
  void log_summary(const std::string& path, int64_t rows, RowForm form) const;
};

struct RowFile {
  std::vector<Row> rows;         // a malformed row keeps its position, with its index as id
  std::map<int64_t, Error> bad;  // by row index; empty unless asked to keep them
  RowKeys keys;
};
/// Reads all rows into memory. `shown` is the name of the file in messages; empty: its path. With
/// rules.keep_bad malformed rows are returned in `bad`; a malformed file (empty, cut, of mixed
/// formats) still throws. With rules.count_unknown unused keys are one warning with their names and
/// numbers, otherwise kInput.
RowFile read_row_file(const std::string& path, const RowRules& rules,
                      const std::string& shown = "");

/// The rows of read_row_file(). kInput with file:line (JSON lines) or file[index] (array).
std::vector<Row> read_rows(const std::string& path);

/// A row as canonical JSON (for hashes and prepared data), and back.
io::Json row_to_json(const Row& row);
Row row_from_json(const io::Json& json, const std::string& where);
/// The text of row_to_json() without id and location, and the first 8 bytes of its sha256.
std::string row_content(const Row& row);
uint64_t row_content_hash(std::string_view content);

}  // namespace lft::data
