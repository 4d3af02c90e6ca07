// Splits tables of text into rows; see row_scan.h. CSV as in RFC 4180: a cell in quotation marks
// may contain line breaks, the delimiter, and quotation marks written twice. The first record names
// the columns. A row is a JSON object of the cells as texts; a column without a name is not read.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/rows/row_scan.h"

namespace lft::data {

/// The form of a file by its ending: .csv, .tsv, .tab.
std::optional<RowForm> table_form(const std::string& path);
/// Whether it is a table: by its ending, and its first character is not a bracket of JSON.
bool is_table_file(const io::FileHandle& file);

/// The state within a record. A quotation mark opens a cell only as its first character.
enum class CellState { kStart, kPlain, kQuoted, kClosed };
CellState next_state(CellState state, char c, char delimiter);
/// Whether the character ends a record.
inline bool ends_record(CellState state, char c) {
  return state != CellState::kQuoted && (c == '\n' || c == '\r');
}

/// The columns, and the position after the first record.
struct TableHeader {
  std::vector<std::string> columns;
  size_t end = 0;
  int64_t lines = 0;
};

class TableScanner : public RowScan {
 public:
  /// kInput for a header that names no columns or one of them twice, and for a table with another
  /// delimiter or without a row.
  explicit TableScanner(const io::FileHandle& file);
  RowForm form() const override { return form_; }
  /// A record with another number of cells, or one that cannot be read, is in batch.broken.
  bool next(RowBatch& batch) override;

 private:
  bool fill();
  bool skip_blanks();
  bool take(RowBatch& batch);
  size_t record_end(size_t begin);
  int64_t offset_of(size_t at) const { return read_ - static_cast<int64_t>(buffer_.size() - at); }

  const io::FileHandle& file_;
  const RowForm form_;
  const int64_t size_;
  TableHeader header_;
  std::string buffer_;  // bytes read and not consumed; its last byte is the last one read
  int64_t read_ = 0;
  size_t at_ = 0;  // position in the buffer
  int64_t rows_ = 0, lines_ = 0, batches_ = 0;
};

/// The JSON object of the record that begins there.
std::string read_table_row(const io::FileHandle& file, int64_t begin, int64_t end);

}  // namespace lft::data
