#include "src/data/rows/table_scanner.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"

namespace lft::data {
namespace {

constexpr int64_t kTablePiece = 4u << 20;   // bytes per read
constexpr size_t kTableBatch = 1u << 20;    // bytes of rows in a full batch
constexpr uint64_t kMostHeader = 1u << 20;  // bytes of the first record
constexpr char kCloseQuote[] =
    "close the quotation marks; within a quoted cell, a quotation mark is written twice: \"\"";
constexpr char kOnePerCell[] =
    "write as many cells as columns; a cell with the delimiter, a line break or quotation marks is "
    "put in quotation marks (csv.writer in Python does so)";

constexpr char kNameColumns[] = "write the names of the columns on the first line, then the rows";

char delimiter_of(RowForm form) { return form == RowForm::kTsv ? '\t' : ','; }

/// The cells of the first record of a text.
struct Cells {
  std::vector<std::string> cells;
  std::optional<size_t> after_quote;  // the first cell with text after its closing quotation mark
  CellState state = CellState::kStart;
};

Cells split_record(std::string_view text, char delimiter) {
  Cells out;
  out.cells.emplace_back();
  for (const char c : text) {
    if (ends_record(out.state, c)) break;
    const CellState before = out.state;
    out.state = next_state(before, c, delimiter);
    const bool opens = before == CellState::kStart && out.state == CellState::kQuoted,
               closes = before == CellState::kQuoted && out.state == CellState::kClosed;
    if (before != CellState::kQuoted && c == delimiter) {
      out.cells.emplace_back();
    } else if (!opens && !closes) {
      const bool is_text = before == CellState::kClosed && out.state == CellState::kPlain;
      if (is_text && !out.after_quote) out.after_quote = out.cells.size() - 1;
      out.cells.back() += c;
    }
  }
  return out;
}

std::string column_name(const std::vector<std::string>& columns, size_t number) {
  const bool named = number < columns.size() && !columns[number].empty();
  return named ? "column " + quote_text(columns[number], 60)
               : "column " + std::to_string(number + 1);
}

/// The text of a cell as JSON; empty if it is not UTF-8.
std::string json_cell(const std::string& cell) {
  try {
    return io::Json(cell).dump();
  } catch (const io::Json::exception&) {
    return "";
  }
}

/// Appends the record as a JSON object to `json`. Returns why it is no row, if so.
std::optional<ErrorInfo> add_record(std::string_view record, const TableHeader& header,
                                    char delimiter, std::string& json) {
  const auto wrong = [](const std::string& what, const std::string& found,
                        const std::string& expected, const std::string& next) {
    return ErrorInfo{what, {}, found, expected, next};
  };
  if (record.size() > kRowLimits.max_bytes)
    return wrong("a row that is too long",
                 "more than " + std::to_string(kRowLimits.max_bytes) + " bytes",
                 "at most " + std::to_string(kRowLimits.max_bytes), "");
  const Cells read = split_record(record, delimiter);
  const std::vector<std::string>& columns = header.columns;
  if (read.after_quote)
    return wrong("text after a closing quotation mark", column_name(columns, *read.after_quote),
                 "the delimiter or the end of the row", kCloseQuote);
  if (read.cells.size() != columns.size()) {
    return wrong("a row with another number of cells than the first line has columns",
                 std::to_string(read.cells.size()) + (read.cells.size() == 1 ? " cell" : " cells"),
                 std::to_string(columns.size()) + ": " + join(columns, ", ", 8), kOnePerCell);
  }
  json = "{";
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].empty()) continue;
    const std::string& cell = read.cells[i];
    const std::string text = cell.find('\0') == std::string::npos ? json_cell(cell) : "";
    if (text.empty()) {
      const bool is_nul = cell.find('\0') != std::string::npos;
      return wrong(is_nul ? "a NUL byte in a table" : "a cell that is not UTF-8",
                   column_name(columns, i) + ": " + quote_text(cell, 60), {},
                   is_nul ? "remove it" : "convert the file: iconv -f LATIN1 -t UTF-8");
    }
    json += (json.size() > 1 ? "," : "") + io::Json(columns[i]).dump() + ":" + text;
  }
  json += "}";
  return std::nullopt;
}

[[noreturn]] void refuse_header(const io::FileHandle& file, const std::string& what,
                                const std::string& found, const std::string& next) {
  refuse(ErrorKind::kInput, what, row_where(file.path(), RowForm::kCsv, 1), found,
         "the names of the columns", next);
}

void check_header(const io::FileHandle& file, const std::vector<std::string>& columns,
                  char delimiter) {
  const bool commas = delimiter == ',';
  if (columns.size() == 1) {
    refuse_header(file, "a table with one column", quote_text(columns[0], 80),
                  std::string("separate the columns by ") + (commas ? "commas" : "tabs") +
                      ": .csv is read with commas, .tsv with tabs");
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].find('\0') != std::string::npos || json_cell(columns[i]).empty())
      refuse_header(file, "a first line that is not UTF-8", quote_text(columns[i], 60),
                    "convert the file: iconv -f LATIN1 -t UTF-8");
    if (!columns[i].empty() && std::ranges::count(columns, columns[i]) > 1)
      refuse_header(file, "two columns with one name", quote_text(columns[i], 60),
                    "give each column its own name");
  }
}

/// Reads as much of the file as the first record needs.
TableHeader read_header(const io::FileHandle& file, RowForm form) {
  const char delimiter = delimiter_of(form);
  constexpr uint64_t kFirstRead = 16u << 10;
  for (uint64_t bytes = kFirstRead;; bytes *= 4) {
    std::string text(std::min<uint64_t>(bytes, file.size()), '\0');
    file.read_at(0, text.data(), text.size());
    const size_t bom = text.starts_with("\xef\xbb\xbf") ? 3 : 0,
                 begin = std::min(text.find_first_not_of("\r\n", bom), text.size());
    size_t end = begin;
    CellState state = CellState::kStart;
    for (; end < text.size() && !ends_record(state, text[end]); ++end)
      state = next_state(state, text[end], delimiter);
    const bool is_whole = end < text.size() || text.size() == file.size();
    if (!is_whole && text.size() < kMostHeader) continue;
    if (begin == text.size())
      refuse(ErrorKind::kInput, "the data file is empty", file.path(), {}, "samples", kNameColumns);
    if (!is_whole || state == CellState::kQuoted)
      refuse_header(file, "a first line without an end",
                    quote_text(std::string_view(text).substr(begin), 60), kCloseQuote);
    const auto lines = [&](size_t from, size_t to) {
      return std::count(text.begin() + static_cast<std::ptrdiff_t>(from),
                        text.begin() + static_cast<std::ptrdiff_t>(to), '\n');
    };
    TableHeader header{.columns = {}, .end = end, .lines = lines(0, end)};
    for (const std::string& name :
         split_record(std::string_view(text).substr(begin, end - begin), delimiter).cells)
      header.columns.emplace_back(trimmed(name));
    check_header(file, header.columns, delimiter);
    return header;
  }
}

}  // namespace

std::optional<RowForm> table_form(const std::string& path) {
  const std::string name = lower_ascii(path);
  if (name.ends_with(".csv")) return RowForm::kCsv;
  if (name.ends_with(".tsv") || name.ends_with(".tab")) return RowForm::kTsv;
  return std::nullopt;
}

bool is_table_file(const io::FileHandle& file) {
  if (!table_form(file.path())) return false;
  std::string head(std::min<uint64_t>(file.size(), 64), '\0');
  file.read_at(0, head.data(), head.size());
  const size_t bom = head.starts_with("\xef\xbb\xbf") ? 3 : 0,
               first = head.find_first_not_of(" \t\r\n", bom);
  return first == std::string::npos || (head[first] != '{' && head[first] != '[');
}

CellState next_state(CellState state, char c, char delimiter) {
  if (state == CellState::kQuoted) return c == '"' ? CellState::kClosed : CellState::kQuoted;
  if (c == delimiter) return CellState::kStart;
  const bool may_open = state == CellState::kStart || state == CellState::kClosed;
  return c == '"' && may_open ? CellState::kQuoted : CellState::kPlain;
}

TableScanner::TableScanner(const io::FileHandle& file)
    : file_(file),
      form_(table_form(file.path()).value()),
      size_(static_cast<int64_t>(file.size())),
      header_(read_header(file, form_)),
      read_(static_cast<int64_t>(header_.end)),
      lines_(header_.lines) {
  if (!skip_blanks())
    refuse(ErrorKind::kInput, "the data file has no samples", file.path(),
           "columns " + join(header_.columns, ", ", 8), "rows after the first line", kNameColumns);
}

bool TableScanner::fill() { return file_.append_next(buffer_, read_, size_, kTablePiece); }

/// Moves to the next record, past line breaks and empty lines; false at the end of the file.
bool TableScanner::skip_blanks() {
  for (;; ++at_) {
    if (at_ == buffer_.size() && !fill()) return false;
    const char c = buffer_[at_];
    if (c != '\n' && c != '\r') return true;
    if (at_ + 1 == buffer_.size()) fill();
    const bool is_first_of_two = c == '\r' && at_ + 1 < buffer_.size() && buffer_[at_ + 1] == '\n';
    lines_ += is_first_of_two ? 0 : 1;
  }
}

/// The position of the line break after the record that begins there, or the end of the file. A
/// record that is too long is kept in part.
size_t TableScanner::record_end(size_t begin) {
  CellState state = CellState::kStart;
  const int64_t line = lines_ + 1;
  for (size_t at = begin;; ++at) {
    if (at == buffer_.size()) {
      if (at - begin > kRowLimits.max_bytes + 1) {
        buffer_.resize(begin + kRowLimits.max_bytes + 1);
        at = buffer_.size();
      }
      if (!fill()) {
        if (state != CellState::kQuoted) return at;
        const Cells cells =
            split_record(std::string_view(buffer_).substr(begin), delimiter_of(form_));
        refuse(ErrorKind::kInput, "a quoted cell without an end",
               row_where(file_.path(), form_, line),
               column_name(header_.columns, cells.cells.size() - 1) + ": " +
                   quote_text(cells.cells.back(), 60),
               "a closing quotation mark", kCloseQuote);
      }
    }
    if (ends_record(state, buffer_[at])) return at;
    lines_ += buffer_[at] == '\n' ? 1 : 0;
    state = next_state(state, buffer_[at], delimiter_of(form_));
  }
}

bool TableScanner::take(RowBatch& batch) {
  if (!skip_blanks()) return false;
  const size_t begin = at_;
  const int64_t offset = offset_of(begin), line = lines_ + 1;
  at_ = record_end(begin);
  const std::string_view record = std::string_view(buffer_).substr(begin, at_ - begin);
  std::string json;
  std::optional<ErrorInfo> wrong = add_record(record, header_, delimiter_of(form_), json);
  if (wrong) {
    batch.broken.emplace(batch.rows.size(), std::move(*wrong));
    json.clear();
  }
  batch.rows.push_back({.begin = batch.text.size(),
                        .size = json.size(),
                        .offset = offset,
                        .end = offset_of(at_),
                        .place = line});
  batch.text += json;
  ++rows_;
  return true;
}

bool TableScanner::next(RowBatch& batch) {
  batch = {.number = batches_++, .first_row = rows_, .text = {}, .rows = {}};
  while (at_ < kTableBatch && take(batch)) {
  }
  buffer_.erase(0, at_);
  at_ = 0;
  return !batch.rows.empty();
}

std::string read_table_row(const io::FileHandle& file, int64_t begin, int64_t end) {
  const RowForm form = table_form(file.path()).value();
  constexpr int64_t kMostBytes = static_cast<int64_t>(kRowLimits.max_bytes) + (1 << 20);
  std::string text(static_cast<size_t>(std::min(end - begin, kMostBytes)), '\0');
  file.read_at(static_cast<uint64_t>(begin), text.data(), text.size());
  std::string json;
  if (const auto wrong = add_record(text, read_header(file, form), delimiter_of(form), json))
    throw Error(ErrorKind::kInput, *wrong);
  return json;
}

}  // namespace lft::data
