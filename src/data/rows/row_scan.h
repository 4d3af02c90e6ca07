// The rows of a data file as raw text, one batch after the other, whatever the file's size and
// form: they are told apart and split, nothing is parsed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/rows/row.h"
#include "src/io/file_handle.h"
#include "src/io/json.h"

namespace lft::data {

/// Of one row. A longer one is bad, and no more of it is held.
inline constexpr io::JsonLimits kRowLimits{.max_bytes = 64u << 20, .max_depth = 16};

/// A JSON line each, the elements of a JSON array, or samples of a tar file: members in a row whose
/// base names are alike up to the first point, of which one ends in .json.
enum class RowForm { kLines, kArray, kTar };
const char* form_name(RowForm form);

/// A row's text within its batch, without white space after it, and where it stands in the file.
struct RawRow {
  size_t begin = 0, size = 0;
  int64_t offset = 0, end = 0;  // of its first byte in the file, and after its last
  int64_t place = 0;            // line from 1, or index from 0
};
struct RowBatch {
  int64_t number = 0, first_row = 0;  // of the batch; of the file's rows
  std::string text;
  std::vector<RawRow> rows;
  std::vector<std::vector<RowImage>> images = {};  // of a tar file, by row
  std::string_view row(size_t i) const {
    return std::string_view(text).substr(rows[i].begin, rows[i].size);
  }
  const std::vector<RowImage>* members(size_t i) const {
    return images.empty() ? nullptr : &images[i];
  }
};

/// A data file, opened; what helps where it is none.
io::FileHandle open_row_file(const std::string& path);

/// "file:line" or "file[index]".
std::string row_where(const std::string& path, RowForm form, int64_t place);

class RowScan {
 public:
  virtual ~RowScan() = default;
  virtual RowForm form() const = 0;
  /// False after the last row. kInput for a file that is cut or malformed between its rows.
  virtual bool next(RowBatch& batch) = 0;
};
/// By the file's first bytes. kInput: of no form that is known (a compressed one is named), or
/// without a sample.
std::unique_ptr<RowScan> scan_rows(const io::FileHandle& file);

/// A row as it stands between the beginnings of two rows of a file.
struct RowText {
  std::string text;
  std::vector<RowImage> images = {};  // of a tar file
};
RowText read_row_text(const io::FileHandle& file, RowForm form, int64_t begin, int64_t end);

}  // namespace lft::data
