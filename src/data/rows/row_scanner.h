// The rows of a data file as raw text, one batch after the other, whatever the file's size: JSON
// arrays and JSON lines are told apart and split, nothing is parsed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/file_handle.h"
#include "src/io/json.h"

namespace lft::data {

/// Of one row. A longer one is bad, and no more of it is held.
inline constexpr io::JsonLimits kRowLimits{.max_bytes = 64u << 20, .max_depth = 16};

/// A row's text within its batch, without white space after it, and where it stands in the file.
struct RawRow {
  size_t begin = 0, size = 0;
  int64_t offset = 0;  // of its first byte in the file
  int64_t place = 0;   // line from 1, or index from 0
};
struct RowBatch {
  int64_t number = 0, first_row = 0;  // of the batch; of the file's rows
  std::string text;
  std::vector<RawRow> rows;
  std::string_view row(size_t i) const {
    return std::string_view(text).substr(rows[i].begin, rows[i].size);
  }
};

/// A data file, opened; what helps where it is none.
io::FileHandle open_row_file(const std::string& path);

/// "file:line" or "file[index]".
std::string row_where(const std::string& path, bool is_array, int64_t place);

/// What is left of bytes between the beginnings of two rows: the first row, as RawRow has it.
std::string_view trim_row(std::string_view bytes, bool is_array);

class RowScanner {
 public:
  /// Recognises the file by its first character. kInput: neither a JSON array nor JSON lines, or
  /// without a sample.
  explicit RowScanner(const io::FileHandle& file);
  bool is_array() const { return is_array_; }
  /// False after the last row. kInput for an array that is cut or malformed between its elements.
  bool next(RowBatch& batch);
  int64_t bytes_read() const { return read_; }  // of the file, so far

 private:
  bool fill();
  bool skip_blanks();
  void drop_beyond(size_t begin, size_t& at, size_t most);
  bool take_line(RowBatch& batch);
  bool take_element(RowBatch& batch);
  size_t element_end(size_t begin);
  int64_t offset_of(size_t at) const { return read_ - static_cast<int64_t>(buffer_.size() - at); }
  [[noreturn]] void broken(const std::string& found, const std::string& expected) const;

  const io::FileHandle& file_;
  const int64_t size_;
  bool is_array_ = false, ended_ = false;
  std::string buffer_;  // read and not handed out; its last byte is the last that was read
  int64_t read_ = 0;
  size_t at_ = 0;  // in the buffer
  int64_t rows_ = 0, lines_ = 0, batches_ = 0;
};

}  // namespace lft::data
