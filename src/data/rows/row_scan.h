// Splits a data file of any size and form into the raw texts of its rows, batch by batch. Nothing
// is parsed.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/data/rows/row.h"
#include "src/io/file_handle.h"
#include "src/io/json.h"

namespace lft::data {

/// The limits of one row. A longer one is bad, and only this much of it is in memory.
inline constexpr io::JsonLimits kRowLimits{
    .max_bytes = 64u << 20, .max_depth = 16, .long_integers_as_text = true};

/// JSON lines, the elements of a JSON array, the samples of a tar file (consecutive members whose
/// base names are equal up to the first point, one of which ends in .json), or the records of a
/// table, as JSON objects.
enum class RowForm { kLines, kArray, kTar, kCsv, kTsv };
const char* form_name(RowForm form);
/// Whether the place of a row is its line.
inline bool counts_lines(RowForm form) { return form != RowForm::kArray && form != RowForm::kTar; }

/// The text of a row in its batch, without trailing white space, and its position in the file.
struct RawRow {
  size_t begin = 0, size = 0;
  int64_t offset = 0, end = 0;  // offset in the file of its first byte, and after its last
  int64_t place = 0;            // line from 1, or index from 0
};
struct RowBatch {
  int64_t number = 0, first_row = 0;  // number of the batch; index of its first row in the file
  std::string text;
  std::vector<RawRow> rows;
  std::vector<std::vector<RowImage>> images = {};  // embedded images per row of a tar file
  std::map<size_t, ErrorInfo> broken = {};         // records of a table that are no rows
  std::string_view row(size_t i) const {
    return std::string_view(text).substr(rows[i].begin, rows[i].size);
  }
  const std::vector<RowImage>* members(size_t i) const {
    return images.empty() ? nullptr : &images[i];
  }
};

/// Opens a data file; errors contain advice.
io::FileHandle open_row_file(const std::string& path);

/// "file:line" or "file[index]".
std::string row_where(const std::string& path, RowForm form, int64_t place);

class RowScan {
 public:
  virtual ~RowScan() = default;
  virtual RowForm form() const = 0;
  /// False after the last row. kInput for a file that is truncated or malformed between its rows.
  virtual bool next(RowBatch& batch) = 0;
};
/// Detects the form by the first bytes. kInput if the form is unknown (a compressed one is named)
/// or the file has no sample.
std::unique_ptr<RowScan> scan_rows(const io::FileHandle& file);

/// The text between the beginnings of two rows of a file.
struct RowText {
  std::string text;
  std::vector<RowImage> images = {};  // embedded images of a tar file
};
RowText read_row_text(const io::FileHandle& file, RowForm form, int64_t begin, int64_t end);

}  // namespace lft::data
