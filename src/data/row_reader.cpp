#include "src/data/row_reader.h"

#include <string_view>
#include <utility>

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/data/dataset.h"
#include "src/data/encode.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

constexpr uint64_t kMaxFile = 4ull << 30;
constexpr io::JsonLimits kRowLimits{.max_bytes = 64u << 20, .max_depth = 16};
constexpr std::string_view kSpace = " \t\r\n";
constexpr char kWriteRows[] = "write the samples as [{...}, {...}], or as one {...} a line";

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

/// A row's text and the name of its place.
struct RawRow {
  std::string_view text;
  int64_t place = 0;  // line from 1, or index from 0
};

[[noreturn]] void broken_array(const std::string& path, int64_t index, const std::string& found,
                               const std::string& expected) {
  refuse(ErrorKind::kInput, "the JSON array of samples is malformed",
         path + "[" + std::to_string(index) + "]", found, expected, kWriteRows);
}

std::string read_bytes(const std::string& path) {
  try {
    return io::read_file(path, kMaxFile);
  } catch (const Error& error) {
    throw advised(error,
                  "name a data file of at most 4 GiB; a relative path counts from the folder that "
                  "lft was started in");
  }
}

/// The end of the element that begins at `at`: the first , or ] outside strings and brackets, or
/// the end of the text.
size_t element_end(std::string_view text, size_t at) {
  int64_t depth = 0;
  bool in_string = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (depth == 0 && (c == ',' || c == ']')) return at;
    if (c == '}' || c == ']') --depth;
  }
  return text.size();
}

/// Elements of the array, unparsed: one at a time they cost little memory, and an error has its
/// index.
std::vector<RawRow> split_array(std::string_view text, const std::string& path) {
  std::vector<RawRow> rows;
  size_t at = text.find_first_not_of(kSpace, text.find('[') + 1);
  if (at != std::string_view::npos && text[at] == ']') return rows;
  while (true) {
    const int64_t index = static_cast<int64_t>(rows.size());
    if (at == std::string_view::npos) broken_array(path, index, "the end of the file", "a sample");
    const size_t end = element_end(text, at);
    if (end == text.size())
      broken_array(path, index, "the end of the file", "] after the last sample");
    if (end == at)
      broken_array(path, index, "nothing before " + std::string(1, text[end]), "a sample");
    rows.push_back({text.substr(at, end - at), index});
    if (text[end] == ']') {
      at = end + 1;
      break;
    }
    at = text.find_first_not_of(kSpace, end + 1);
  }
  if (text.find_first_not_of(kSpace, at) != std::string_view::npos) {
    broken_array(path, static_cast<int64_t>(rows.size()), "text behind the closing ]",
                 "the end of the file");
  }
  return rows;
}

/// Lines that are not blank; CRLF counts as a line break.
std::vector<RawRow> split_lines(std::string_view text) {
  std::vector<RawRow> rows;
  int64_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    ++line;
    at = end + 1;
    while (!row.empty() && is_space(row.back())) row.remove_suffix(1);
    if (!row.empty()) rows.push_back({row, line});
  }
  return rows;
}

void check_same_keys(const RowKeys& first, const RowKeys& keys, const std::string& where) {
  if (first.list.empty() || keys.list.empty()) return;
  if (first.list == keys.list && first.role == keys.role && first.text == keys.text) return;
  refuse(ErrorKind::kInput, "a file mixes two sample formats", where,
         keys.list + " of {" + keys.role + ", " + keys.text + "}",
         first.list + " of {" + first.role + ", " + first.text + "}, as in the first sample",
         "give each format a file of its own");
}

/// How rows are read: what becomes of malformed ones, and of keys that are not used.
struct RowPolicy {
  bool keep_bad = false, count_unknown = false;
};

void warn_of_unused(const std::map<std::string, int64_t>& unused, const std::string& path) {
  std::vector<std::string> names;
  for (const auto& [name, rows] : unused)
    names.push_back(name + " (" + std::to_string(rows) + (rows == 1 ? " row)" : " rows)"));
  if (!names.empty()) warning(path + ": lft does not use " + join(names));
}

RowFile parse_rows(const std::vector<RawRow>& raw, const std::string& path, bool is_array,
                   const RowPolicy& policy) {
  RowFile file;
  std::map<std::string, int64_t> unused;
  file.rows.reserve(raw.size());
  for (const RawRow& text : raw) {
    const std::string place = std::to_string(text.place);
    const std::string where = is_array ? path + "[" + place + "]" : path + ":" + place;
    const int64_t index = static_cast<int64_t>(file.rows.size());
    RowKeys keys;
    Row row{.id = std::to_string(index), .where = where, .turns = {}, .images = {}};
    try {
      row = parse_row(io::parse_json(text.text, where, kRowLimits), where, index, keys,
                      policy.count_unknown);
    } catch (const Error& error) {
      if (!policy.keep_bad) throw advised(error, kMendRow);
      file.bad.emplace(index, error);
    }
    check_same_keys(file.keys, keys, where);
    if (file.keys.list.empty()) file.keys = keys;
    file.keys.other_roles |= keys.other_roles;
    for (const std::string& name : keys.unused) ++unused[name];
    file.rows.push_back(std::move(row));
  }
  warn_of_unused(unused, path);
  return file;
}

}  // namespace

RowFile read_row_file(const std::string& path, bool keep_bad, bool count_unknown) {
  const std::string bytes = read_bytes(path);
  std::string_view text = bytes;
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  const size_t start = text.find_first_not_of(kSpace);
  if (start == std::string_view::npos) {
    refuse(ErrorKind::kInput, "the data file is empty", path, {}, "samples", kWriteRows);
  }
  const bool is_array = text[start] == '[';
  if (!is_array && text[start] != '{') {
    refuse(ErrorKind::kInput, "neither a JSON array nor JSON lines", path,
           quote_text(text.substr(start), 40), "[ or { as the first character", kWriteRows);
  }
  RowFile file = parse_rows(is_array ? split_array(text, path) : split_lines(text), path, is_array,
                            {keep_bad, count_unknown});
  if (file.rows.empty()) {
    refuse(ErrorKind::kInput, "the data file holds no sample", path, "[]", {}, kWriteRows);
  }
  notice(path + ": " + std::to_string(file.rows.size()) +
         (file.rows.size() == 1 ? " sample" : " samples") + ", format " + file.keys.format() +
         (is_array ? " (JSON array)" : " (JSON lines)"));
  return file;
}

std::vector<Row> read_rows(const std::string& path) { return read_row_file(path, false).rows; }

io::Json row_to_json(const Row& row) {
  io::Json turns = io::Json::array();
  io::Json masked = io::Json::array();  // the numbers of turns that are not learnt
  for (const text::Turn& turn : row.turns) {
    if (!turn.learnt) masked.push_back(turns.size());
    turns.push_back({turn.question, turn.answer});
  }
  io::Json json = {{"id", row.id}, {"images", row.images}, {"turns", turns}, {"where", row.where}};
  if (!row.system.empty()) json["system"] = row.system;
  if (!masked.empty()) json["masked"] = std::move(masked);
  return json;
}

Row row_from_json(const io::Json& json, const std::string& where) {
  Row row;
  try {
    row.id = json.at("id").get<std::string>();
    row.where = json.at("where").get<std::string>();
    row.images = json.at("images").get<std::vector<std::string>>();
    for (const io::Json& turn : json.at("turns"))
      row.turns.push_back({turn.at(0).get<std::string>(), turn.at(1).get<std::string>()});
    if (json.contains("system")) row.system = json.at("system").get<std::string>();
    for (const io::Json& number : json.value("masked", io::Json::array()))
      row.turns.at(number.get<size_t>()).learnt = false;
  } catch (const std::exception& error) {  // of another type, or a turn that is not there
    refuse(ErrorKind::kInput, "a prepared row is malformed", where, error.what(), {},
           "run lft prepare again");
  }
  return row;
}

}  // namespace lft::data
