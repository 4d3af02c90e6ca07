#include "src/data/rows/row_scanner.h"

#include <algorithm>
#include <array>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::data {
namespace {

constexpr int64_t kPiece = 4u << 20;  // bytes per read
constexpr size_t kBatch = 1u << 20;   // bytes of rows in a full batch
constexpr std::string_view kBlank = " \t\r\n";
constexpr char kWriteRows[] = "write the samples as [{...}, {...}], or as one {...} a line";

bool is_blank(char c) { return kBlank.find(c) != std::string_view::npos; }

std::string_view without_end_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string_view trim_row(std::string_view bytes, bool is_array) {
  bytes = without_end_blanks(bytes);
  if (is_array && bytes.ends_with(','))
    bytes = without_end_blanks(bytes.substr(0, bytes.size() - 1));
  return bytes;
}

RowScanner::RowScanner(const io::FileHandle& file)
    : file_(file), size_(static_cast<int64_t>(file.size())) {
  fill();
  if (std::string_view(buffer_).starts_with("\xef\xbb\xbf")) at_ = 3;
  if (!skip_blanks())
    refuse(ErrorKind::kInput, "the data file is empty", file.path(), {}, "samples", kWriteRows);
  is_array_ = buffer_[at_] == '[' || find_wrapped_rows();
  if (!is_array_ && buffer_[at_] != '{') {
    refuse(ErrorKind::kInput, "neither a JSON array nor JSON lines", file.path(),
           quote_text(std::string_view(buffer_).substr(at_, 200), 40),
           "[ or { as the first character", kWriteRows);
  }
  if (!is_array_) {
    const size_t line = buffer_.find('\n', at_);
    is_spread_ = line != std::string::npos &&
                 without_end_blanks(std::string_view(buffer_).substr(at_, line - at_)) == "{";
    return;
  }
  ++at_;
  if (skip_blanks() && buffer_[at_] == ']')
    refuse(ErrorKind::kInput, "the data file has no samples", file.path(), "[]", {}, kWriteRows);
}

/// Finds the list of {"data": [...]}, also after texts and numbers, and moves to its bracket.
bool RowScanner::find_wrapped_rows() {
  static constexpr std::array<std::string_view, 8> kLists = {
      "data", "rows", "train", "samples", "examples", "instances", "records", "items"};
  const std::string_view text = buffer_;
  size_t at = at_;
  const auto skip = [&] { at = std::min(text.find_first_not_of(kBlank, at), text.size()); };
  const auto string_end = [&] {  // after its closing quotation mark
    for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    at = std::min(at + 1, text.size());
  };
  while (at < text.size() && (text[at] == '{' || text[at] == ',')) {
    ++at;
    skip();
    if (at >= text.size() || text[at] != '"') return false;
    const size_t begin = at + 1;
    string_end();
    const std::string_view key = text.substr(begin, at - begin - 1);
    skip();
    if (at >= text.size() || text[at] != ':') return false;
    ++at;
    skip();
    if (at >= text.size() || text[at] == '{') return false;
    if (text[at] == '[') {
      is_wrapped_ = std::ranges::find(kLists, key) != kLists.end();
      if (is_wrapped_) at_ = at;
      return is_wrapped_;
    }
    if (text[at] == '"')
      string_end();
    else
      at = std::min(text.find_first_of(",}", at), text.size());
    skip();
  }
  return false;
}

bool RowScanner::fill() { return file_.append_next(buffer_, read_, size_, kPiece); }

/// Keeps at most `most` bytes of an element from `begin` to `at`, the buffer's end.
void RowScanner::drop_beyond(size_t begin, size_t& at, size_t most) {
  if (at - begin <= most) return;
  buffer_.resize(begin + most);
  at = begin + most;
}

/// Advances to the next byte that is not white space; false at the end of the file.
bool RowScanner::skip_blanks() {
  const size_t begin = at_;
  while (true) {
    for (; at_ < buffer_.size(); ++at_) {
      if (!is_blank(buffer_[at_])) return true;
      lines_ += buffer_[at_] == '\n' ? 1 : 0;
    }
    drop_beyond(begin, at_, 0);
    if (!fill()) return false;
  }
}

bool RowScanner::take_line(RowBatch& batch) {
  while (at_ < buffer_.size() || fill()) {
    const size_t begin = at_;
    const int64_t offset = offset_of(begin);
    size_t from = begin, end = 0;
    while ((end = buffer_.find('\n', from)) == std::string::npos) {
      from = buffer_.size();
      drop_beyond(begin, from, kRowLimits.max_bytes + 1);
      if (fill()) continue;
      end = buffer_.size();
      break;
    }
    ++lines_;
    at_ = std::min(end + 1, buffer_.size());
    const size_t size =
        without_end_blanks(std::string_view(buffer_).substr(begin, end - begin)).size();
    if (size == 0) continue;
    batch.rows.push_back({.begin = begin,
                          .size = size,
                          .offset = offset,
                          .end = offset + static_cast<int64_t>(size),
                          .place = lines_});
    ++rows_;
    return true;
  }
  return false;
}

/// Consecutive objects of several lines.
bool RowScanner::take_object(RowBatch& batch) {
  if (!skip_blanks()) return false;
  const size_t begin = at_;
  const int64_t offset = offset_of(begin), line = lines_ + 1;
  const size_t end = buffer_[begin] == '{' ? element_end(begin) : begin;
  if (end == begin)
    broken(quote_text(std::string_view(buffer_).substr(begin, 20)),
           "{, with which a sample begins");
  lines_ += std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin),
                       buffer_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  batch.rows.push_back({.begin = begin,
                        .size = end - begin,
                        .offset = offset,
                        .end = offset + static_cast<int64_t>(end - begin),
                        .place = line});
  ++rows_;
  at_ = end;
  return true;
}

/// The end of the element that begins there: the first , or ] outside strings and brackets, or the
/// end of an object that is not in a list.
size_t RowScanner::element_end(size_t begin) {
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  for (size_t at = begin;; ++at) {
    if (at == buffer_.size()) {
      drop_beyond(begin, at, kRowLimits.max_bytes + 1);
      if (!fill())
        broken("the end of the file",
               is_spread_ ? "} after the last sample" : "] after the last sample");
    }
    const char c = buffer_[at];
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (depth == 0 && (c == ',' || c == ']')) return at;
    if (c == '}' || c == ']') --depth;
    if (is_spread_ && depth == 0 && c == '}') return at + 1;
  }
}

bool RowScanner::take_element(RowBatch& batch) {
  if (ended_) return false;
  if (!skip_blanks()) broken("the end of the file", "a sample");
  const size_t begin = at_;
  const int64_t offset = offset_of(begin);
  const size_t end = element_end(begin);
  if (end == begin) broken("nothing before " + std::string(1, buffer_[end]), "a sample");
  const size_t size =
      without_end_blanks(std::string_view(buffer_).substr(begin, end - begin)).size();
  batch.rows.push_back({.begin = begin,
                        .size = size,
                        .offset = offset,
                        .end = offset + static_cast<int64_t>(size),
                        .place = rows_});
  ++rows_;
  at_ = end + 1;
  ended_ = buffer_[end] == ']';
  if (ended_ && !is_wrapped_ && skip_blanks())
    broken("text after the closing ]", "the end of the file");
  return true;
}

bool RowScanner::next(RowBatch& batch) {
  batch = {.number = batches_++, .first_row = rows_, .text = {}, .rows = {}};
  const auto take = [&] {
    return is_array_ ? take_element(batch) : is_spread_ ? take_object(batch) : take_line(batch);
  };
  while (at_ < kBatch && take()) {
  }
  batch.text = buffer_.substr(0, at_);
  buffer_.erase(0, at_);
  at_ = 0;
  return !batch.rows.empty();
}

void RowScanner::broken(const std::string& found, const std::string& expected) const {
  refuse(ErrorKind::kInput,
         is_array_ ? "the JSON array of samples is malformed" : "the JSON objects are malformed",
         is_array_ ? row_where(file_.path(), RowForm::kArray, rows_)
                   : row_where(file_.path(), RowForm::kLines, lines_ + 1),
         found, expected, kWriteRows);
}

}  // namespace lft::data
