// Splits JSON arrays and JSON lines into rows; see row_scan.h.
#pragma once
#include <string>
#include <string_view>

#include "src/data/rows/row_scan.h"

namespace lft::data {

/// The first row in the bytes between the beginnings of two rows, trimmed as in RawRow.
std::string_view trim_row(std::string_view bytes, bool is_array);

class RowScanner : public RowScan {
 public:
  /// Recognises the file by its first character. kInput: neither a JSON array nor JSON lines, or
  /// without a sample.
  explicit RowScanner(const io::FileHandle& file);
  RowForm form() const override { return is_array_ ? RowForm::kArray : RowForm::kLines; }
  bool next(RowBatch& batch) override;

 private:
  bool fill();
  bool skip_blanks();
  void drop_beyond(size_t begin, size_t& at, size_t most);
  bool find_wrapped_rows();
  bool take_line(RowBatch& batch);
  bool take_object(RowBatch& batch);
  bool take_element(RowBatch& batch);
  size_t element_end(size_t begin);
  int64_t offset_of(size_t at) const { return read_ - static_cast<int64_t>(buffer_.size() - at); }
  [[noreturn]] void broken(const std::string& found, const std::string& expected) const;

  const io::FileHandle& file_;
  const int64_t size_;
  bool is_array_ = false, ended_ = false;
  bool is_wrapped_ = false;  // the list is a value of an object
  bool is_spread_ = false;   // an object has several lines
  std::string buffer_;       // bytes read and not consumed; its last byte is the last one read
  int64_t read_ = 0;
  size_t at_ = 0;  // position in the buffer
  int64_t rows_ = 0, lines_ = 0, batches_ = 0;
};

}  // namespace lft::data
