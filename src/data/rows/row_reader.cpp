#include "src/data/rows/row_reader.h"

#include <algorithm>
#include <utility>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/data/rows/row_columns.h"
#include "src/data/rows/row_images.h"
#include "src/data/rows/row_marks.h"

namespace lft::data {
namespace {

/// Python and pandas write NaN and Infinity, which are not JSON, for missing values. Outside of
/// strings they are replaced by null.
std::string without_nonfinite(std::string_view text) {
  std::string plain;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto is_next = [&](std::string_view word) {
      return !in_string && text.substr(at, word.size()) == word;
    };
    size_t bytes = 0;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"})
      if (bytes == 0 && is_next(word)) bytes = word.size();
    if (bytes > 0) {
      plain += "null";
      at += bytes - 1;
      continue;
    }
    plain += text[at];
    if (in_string && text[at] == '\\' && at + 1 < text.size())
      plain += text[++at];
    else if (text[at] == '"')
      in_string = !in_string;
  }
  return plain;
}

/// The columns of a row that the rules name.
std::set<std::string> mapped_columns(const io::Json& json, const ColumnRules& rules) {
  std::set<std::string> columns;
  for (const auto& [role, column] : rules.names)
    if (json.is_object() && json.contains(column)) columns.insert(column);
  return columns;
}

std::string keys_text(const RowKeys& keys) {
  if (keys.list != kColumns) return keys.list + " of {" + keys.role + ", " + keys.text + "}";
  return "columns " + (keys.role.empty() ? "" : keys.role + ", ") + keys.text;
}

/// A row of columns may lack an answer, which an evaluation allows.
bool are_same(const RowKeys& a, const RowKeys& b) {
  const bool texts = a.text == b.text || (a.list == kColumns && (a.text.empty() || b.text.empty()));
  return a.list == b.list && a.role == b.role && texts;
}

/// Gives a row, or a side of a pair, the images of its tar file and the marks of its images.
void complete_side(Row& side, const io::Json& json, RowKeys& keys, const RowRules& rules,
                   const std::vector<RowImage>* members) {
  if (members != nullptr && !take_members(side, *members, rules.all_members)) keys.unordered = true;
  if (keys.list == kColumns) complete_columns(side, json, keys);
}

}  // namespace

ReadRow read_row(std::string_view text, const std::string& where, int64_t index,
                 const RowRules& rules, const std::vector<RowImage>* members) {
  ReadRow read{
      .row = {.id = std::to_string(index), .where = where, .conversation = {}, .images = {}},
      .keys = {},
      .bad = {}};
  std::string plain;
  if (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos)
    text = plain = without_nonfinite(text);
  try {
    io::Json json = io::parse_json(text, where, kRowLimits);
    std::optional<nlohmann::ordered_json> ordered;
    if (text.find("\"tool") != std::string_view::npos)
      ordered = nlohmann::ordered_json::parse(text);
    read.keys.mapped = mapped_columns(json, rules.columns);
    const std::vector<std::string> replaced = rename_columns(json, rules.columns);
    if (ordered) rename_columns(*ordered, rules.columns);
    read.row =
        parse_row(json, where, index, read.keys, rules, ordered ? &ordered.value() : nullptr);
    complete_side(read.row, json, read.keys, rules, members);
    if (read.row.rejected) {
      Row other = *read.row.rejected;
      complete_side(other, json, read.keys, rules, members);
      read.row.rejected = std::make_shared<const Row>(std::move(other));
    }
    RowKeyCheck check(rules.count_unknown, rules.count_marks);
    for (const std::string& column : replaced) check.replaced(column, where);
    look_for_marks(read.row, check, /*with_tokens=*/rules.count_marks);
    read.keys.unused.insert(check.unused().begin(), check.unused().end());
  } catch (const Error& error) {
    read.row = {.id = std::to_string(index), .where = where, .conversation = {}, .images = {}};
    read.bad = error;
  }
  return read;
}

ReadRow read_row(const RowBatch& batch, size_t i, const std::string& where, int64_t index,
                 const RowRules& rules) {
  const auto broken = batch.broken.find(i);
  if (broken == batch.broken.end())
    return read_row(batch.row(i), where, index, rules, batch.members(i));
  ErrorInfo error = broken->second;
  error.where = where;
  return {.row = {.id = std::to_string(index), .where = where, .conversation = {}, .images = {}},
          .keys = {},
          .bad = Error(ErrorKind::kInput, std::move(error))};
}

void FileFormat::add(const RowKeys& row, const std::string& where) {
  if (!keys.list.empty() && !row.list.empty() && !are_same(keys, row)) {
    refuse(ErrorKind::kInput, "a file mixes two sample formats", where, keys_text(row),
           keys_text(keys) + ", as in the first sample", "write each format to a separate file");
  }
  if (keys.list.empty()) {
    keys = row;
  } else {
    if (keys.text.empty()) keys.text = row.text;
    for (const std::string& column : row.reads)
      if (std::ranges::find(keys.reads, column) == keys.reads.end()) keys.reads.push_back(column);
    keys.mapped.insert(row.mapped.begin(), row.mapped.end());
  }
  keys.other_roles |= row.other_roles;
  for (const std::string& name : row.unused) ++unused[name];
  if (row.unordered && unordered++ == 0) first_unordered = where;
}

void FileFormat::check_columns(const ColumnRules& rules, const std::string& path) const {
  std::vector<std::string> missing;
  bool any = false;
  for (const auto& [role, column] : rules.names) {
    if (rules.of_file.contains(role)) continue;
    const bool is = keys.mapped.contains(column);
    any = any || is;
    if (!is) missing.push_back(role + ": " + quote_text(column, 60));
  }
  if (any && !missing.empty())
    refuse(ErrorKind::kInput, "data.columns names a column that no row has", path, join(missing),
           {}, "write the name as the file does");
}

void FileFormat::log_summary(const std::string& path, int64_t rows, RowForm form) const {
  std::vector<std::string> names;
  for (const auto& [name, count] : unused)
    names.push_back(name + " (" + std::to_string(count) + (count == 1 ? " row)" : " rows)"));
  if (!names.empty()) warning(path + ": lft does not use " + join(names));
  if (unordered > 0) {
    warning(path + ": " + std::to_string(unordered) +
            (unordered == 1 ? " row shows its images" : " rows show their images") +
            " in the order of the file, which is not that of the numbers in their names (" +
            first_unordered +
            "): 0, 1, 10, 2 where a tar file is sorted by name. Write the numbers " +
            "with leading zeros, or name the images in \"images\"");
  }
  notice(path + ": " + std::to_string(rows) + (rows == 1 ? " sample" : " samples") + ", " +
         keys.format() + " (" + form_name(form) + ")");
}

RowFile read_row_file(const std::string& path, const RowRules& rules, const std::string& shown) {
  const io::FileHandle bytes = open_row_file(path);
  const std::unique_ptr<RowScan> scan = scan_rows(bytes);
  const std::string& name = shown.empty() ? path : shown;
  FileFormat format;
  RowFile file;
  std::optional<Error> first_bad;  // an error of the file takes precedence over one of a row
  for (RowBatch batch; scan->next(batch);) {
    for (size_t i = 0; i < batch.rows.size() && !first_bad; ++i) {
      const std::string where = row_where(name, scan->form(), batch.rows[i].place);
      const auto index = static_cast<int64_t>(file.rows.size());
      ReadRow read = read_row(batch, i, where, index, rules);
      try {
        if (read.bad && !rules.keep_bad) throw advised(*read.bad, kFixRow);
        format.add(read.keys, where);
      } catch (const Error& error) {
        first_bad = error;
        break;
      }
      if (read.bad) file.bad.emplace(index, *read.bad);
      file.rows.push_back(std::move(read.row));
    }
  }
  if (first_bad) throw Error(*first_bad);
  format.check_columns(rules.columns, name);
  format.log_summary(name, static_cast<int64_t>(file.rows.size()), scan->form());
  file.keys = format.keys;
  return file;
}

std::vector<Row> read_rows(const std::string& path) { return read_row_file(path, {}).rows; }

namespace {

/// A message's role and text, and its other fields by name.
io::Json message_to_json(const text::Message& message) {
  io::Json json = {message.role, message.text};
  io::Json more = io::Json::object();
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) more[key] = value;
  };
  if (!message.learnt) more["learnt"] = false;
  if (!message.cuts.empty()) more["cuts"] = message.cuts;
  add("reasoning", message.reasoning);
  add("reasoning_key", message.reasoning_key);
  add("tool_calls", message.tool_calls);
  add("tool_call_id", message.tool_call_id);
  add("name", message.name);
  if (!more.empty()) json.push_back(std::move(more));
  return json;
}

text::Message message_from_json(const io::Json& json) {
  const io::Json more = json.size() > 2 ? json.at(2) : io::Json::object();
  return {.role = json.at(0).get<std::string>(),
          .text = json.at(1).get<std::string>(),
          .cuts = more.value("cuts", std::vector<size_t>()),
          .learnt = more.value("learnt", true),
          .reasoning = more.value("reasoning", ""),
          .reasoning_key = more.value("reasoning_key", ""),
          .tool_calls = more.value("tool_calls", ""),
          .tool_call_id = more.value("tool_call_id", ""),
          .name = more.value("name", "")};
}

/// The form of rows written before messages existed: turns and a system text.
std::vector<text::Message> messages_from_turns(const io::Json& json) {
  std::vector<text::Turn> turns;
  for (const io::Json& turn : json.at("turns"))
    turns.push_back({turn.at(0).get<std::string>(), turn.at(1).get<std::string>()});
  for (const io::Json& number : json.value("masked", io::Json::array()))
    turns.at(number.get<size_t>()).learnt = false;
  const std::string system = json.value("system", "");
  return text::messages_of(turns, json.contains("system") ? &system : nullptr);
}

}  // namespace

io::Json row_to_json(const Row& row) {
  io::Json messages = io::Json::array();
  for (const text::Message& message : row.messages()) messages.push_back(message_to_json(message));
  io::Json json = {
      {"id", row.id}, {"images", row.images}, {"messages", messages}, {"where", row.where}};
  if (!row.conversation.tools.empty()) json["tools"] = row.conversation.tools;
  if (!row.answers.empty()) json["answers"] = row.answers;
  if (row.desirable) json["desirable"] = *row.desirable;
  if (row.rejected) {
    json["rejected"] = row_to_json(*row.rejected);
    json["rejected"].erase("where");
  }
  return json;
}

std::string row_content(const Row& row) {
  io::Json content = row_to_json(row);
  content.erase("id");
  content.erase("where");
  if (row.rejected) content["rejected"].erase("id");
  return content.dump();
}

uint64_t row_content_hash(std::string_view content) {
  return std::stoull(sha256(content).substr(0, 16), nullptr, 16);
}

Row row_from_json(const io::Json& json, const std::string& where) {
  Row row;
  try {
    row.id = json.at("id").get<std::string>();
    row.where = json.at("where").get<std::string>();
    row.images = json.at("images").get<std::vector<std::string>>();
    if (json.contains("turns")) {
      row.conversation.messages = messages_from_turns(json);
    } else {
      for (const io::Json& message : json.at("messages"))
        row.conversation.messages.push_back(message_from_json(message));
    }
    row.conversation.tools = json.value("tools", "");
    row.answers = json.value("answers", std::vector<std::string>());
    if (json.contains("desirable")) row.desirable = json["desirable"].get<bool>();
    if (json.contains("rejected")) {
      io::Json rejected = json["rejected"];
      rejected["where"] = row.where;
      row.rejected = std::make_shared<const Row>(row_from_json(rejected, where));
    }
  } catch (const std::exception& error) {  // wrong type, or missing turn
    refuse(ErrorKind::kInput, "a prepared row is malformed", where, error.what(), {},
           "run lft prepare again");
  }
  return row;
}

}  // namespace lft::data
