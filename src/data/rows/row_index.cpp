#include "src/data/rows/row_index.h"

#include <algorithm>

#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/data/rows/row_index_make.h"
#include "src/data/store/data_changed.h"
#include "src/io/files.h"

namespace lft::data {
namespace {

constexpr char kKind[] = "rows 11";
constexpr io::JsonLimits kStoredLimits{.max_bytes = 1ull << 30, .max_depth = 8};

io::Json stored_error(const Error& error) {
  const ErrorInfo& info = error.info();
  return {info.what, info.where, info.found, info.expected, info.next};
}

/// Errors use the current name of the file.
Error error_from(const io::Json& json, const std::string& stored_path, const std::string& path) {
  const auto part = [&](size_t i) { return json.at(i).get<std::string>(); };
  ErrorInfo info{part(0), part(1), part(2), part(3), part(4)};
  if (info.where.starts_with(stored_path)) info.where.replace(0, stored_path.size(), path);
  return Error(ErrorKind::kInput, std::move(info));
}

bool rises(std::span<const int64_t> numbers, int64_t last) {
  return !numbers.empty() && numbers.front() >= 0 && numbers.back() == last &&
         std::ranges::is_sorted(numbers);
}

}  // namespace

RowIndex::RowIndex(const std::string& path, const RowRules& rules,
                   const std::vector<std::string>& kept, const RowVisitor& visit,
                   const std::string& shown)
    : file_(open_row_file(path)),
      stamp_(FileStamp::of(path)),
      shown_(shown.empty() ? path : shown),
      rules_(rules) {
  was_created_ = std::ranges::none_of(kept, [this](const std::string& file) { return load(file); });
  if (was_created_) {
    RowIndexMaker(*this, visit).make();
    view();
  }
  if (!rules_.keep_bad && !bad_.empty()) throw advised(bad_.begin()->second, kFixRow);
  if (!was_created_) return;
  format_.check_columns(rules_.columns, shown_);
  content_ = content_hash(file_);
  const FileStamp after = FileStamp::of(path);
  if (!stamp_.same(after)) throw DataChanged(path, "other times or another size");
  stamp_ = after;
  if (form_ == RowForm::kTar) hash_ = sha256(hash_ + " " + content_);
}

void RowIndex::forget() {
  columns_ = {};
  format_ = {};
  bad_.clear();
  form_ = RowForm::kLines;
  is_kept_ = false;
  view();
}

/// The file may be missing, belong to other data, or have any content.
bool RowIndex::load(const std::string& path) {
  if (!io::path_exists(path)) return false;
  try {
    const Columns columns = Columns::load(path);
    if (!is_of_these_rules(columns)) return false;  // an evaluation reads rows by other rules
    if (take(columns)) return true;
    notice(path + " is of other data than " + file_.path() + " contains now: it is made again");
  } catch (const std::exception& error) {  // including JSON errors
    notice(path + " cannot be used (" + error.what() + "): it is made again");
  }
  forget();
  return false;
}

bool RowIndex::is_of_these_rules(const Columns& columns) const {
  const io::Json rules = io::parse_json(columns.facts.at("rules"), "rules");
  return rules.at("count_unknown") == rules_.count_unknown &&
         rules.value("count_marks", io::Json()) == rules_.count_marks &&
         rules.value("open_questions", false) == rules_.open_questions &&
         rules.value("pairs", false) == rules_.pairs &&
         rules.value("labelled", false) == rules_.labelled &&
         rules.value("columns", io::Json()) == to_json(rules_.columns);
}

bool RowIndex::take(const Columns& columns) {
  const std::map<std::string, std::string>& facts = columns.facts;
  const std::optional<FileStamp> stamp = FileStamp::read(facts);
  if (facts.at("kind") != kKind || !stamp || stamp->bytes != stamp_.bytes) return false;
  const io::Json rules = io::parse_json(facts.at("rules"), "rules");
  content_ = facts.at("content");
  is_kept_ = stamp->settled() && stamp->same(stamp_);
  if (!is_kept_ && content_hash(file_) != content_) return false;
  columns_ = columns;
  view();
  const auto form = rules.at("form").get<int>();
  if (form < 0 || form > static_cast<int>(RowForm::kTsv)) return false;
  form_ = static_cast<RowForm>(form);
  hash_ = facts.at("hash");
  if (!sound()) return false;
  const io::Json format = io::parse_json(facts.at("format_of_rows"), "format");
  format_.keys = {.list = format.at("list"), .role = format.at("role"), .text = format.at("text")};
  format_.keys.other_roles = format.at("other_roles");
  format_.keys.reads = format.at("reads").get<std::vector<std::string>>();
  format_.unused = format.at("unused").get<std::map<std::string, int64_t>>();
  format_.unordered = format.at("unordered");
  format_.first_unordered = format.at("first_unordered");
  const auto text = columns.get<uint8_t>("bad");
  const std::string_view stored(reinterpret_cast<const char*>(text.data()), text.size());
  for (const io::Json& each : io::parse_json(stored, "bad", kStoredLimits)) {
    const auto index = each.at(0).get<int64_t>();
    if (index < 0 || index >= size()) return false;
    bad_.emplace(index, error_from(each.at(1), facts.at("path"), shown_));
  }
  return true;
}

void RowIndex::view() {
  offsets_ = columns_.get<int64_t>("offsets");
  digests_ = columns_.get<uint64_t>("digests");
  row_hashes_ = columns_.get<uint64_t>("said");
  image_begin_ = columns_.get<int64_t>("image_begin");
  image_numbers_ = columns_.get<int32_t>("image_numbers");
  name_begin_ = columns_.get<int64_t>("name_begin");
  names_ = columns_.get<uint8_t>("names");
  image_keys_ = columns_.get<uint64_t>("image_keys");
  jumps_ = columns_.get<int64_t>("jumps");
}

/// Whether all offsets are inside the file and consistent.
bool RowIndex::sound() const {
  const size_t rows = digests_.size();
  const auto in_names = [this](int32_t number) { return number >= 0 && number < image_names(); };
  return rows > 0 && offsets_.size() == rows + 1 && row_hashes_.size() == rows &&
         image_begin_.size() == rows + 1 && rises(offsets_, offsets_.back()) &&
         offsets_.back() <= stamp_.bytes && image_begin_.front() == 0 &&
         rises(image_begin_, static_cast<int64_t>(image_numbers_.size())) &&
         rises(name_begin_, static_cast<int64_t>(names_.size())) && name_begin_.front() == 0 &&
         std::ranges::all_of(image_numbers_, in_names) && jumps_.size() % 2 == 0 &&
         std::ssize(image_keys_) == image_names();
}

std::span<const int32_t> RowIndex::images(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const auto begin = static_cast<size_t>(image_begin_[i]);
  return image_numbers_.subspan(begin, static_cast<size_t>(image_begin_[i + 1]) - begin);
}

std::string RowIndex::image_name(int64_t number) const {
  const auto i = static_cast<size_t>(number);
  const auto* const names = reinterpret_cast<const char*>(names_.data());
  return {names + name_begin_[i], names + name_begin_[i + 1]};
}

/// Blank lines may separate rows: after each gap the line number is recorded.
int64_t RowIndex::place_of(int64_t index) const {
  if (!counts_lines(form_)) return index;
  int64_t place = index + 1;
  size_t below = 0, above = jumps_.size() / 2;
  while (below < above) {
    const size_t middle = (below + above) / 2;
    if (jumps_[2 * middle] <= index) {
      place = jumps_[2 * middle + 1] + (index - jumps_[2 * middle]);
      below = middle + 1;
    } else {
      above = middle;
    }
  }
  return place;
}

Row RowIndex::row(int64_t index) const {
  const std::string where = row_where(shown_, form_, place_of(index));
  if (bad_.contains(index))
    return {.id = std::to_string(index), .where = where, .conversation = {}, .images = {}};
  const auto i = static_cast<size_t>(index);
  RowText raw;
  try {
    raw = read_row_text(file_, form_, offsets_[i], offsets_[i + 1]);
  } catch (const Error& error) {
    throw DataChanged(where, error.what());
  }
  if (placed_digest(raw.text.data(), raw.text.size(), 0) != digests_[i])
    throw DataChanged(where, "other bytes");
  ReadRow read =
      read_row(raw.text, where, index, rules_, form_ == RowForm::kTar ? &raw.images : nullptr);
  if (read.bad) throw Error(*read.bad);
  return std::move(read.row);
}

void RowIndex::save(const std::string& path) const {
  Columns kept = columns_;
  stamp_.write(kept.facts);
  kept.facts["kind"] = kKind;
  kept.facts["content"] = content_;
  kept.facts["hash"] = hash_;
  kept.facts["path"] = shown_;
  kept.facts["rules"] = io::Json{
      {"count_unknown", rules_.count_unknown},
      {"count_marks", rules_.count_marks},
      {"open_questions", rules_.open_questions},
      {"pairs", rules_.pairs},
      {"labelled", rules_.labelled},
      {"columns", to_json(rules_.columns)},
      {"form", static_cast<int>(
                   form_)}}.dump();
  const RowKeys& keys = format_.keys;
  kept.facts["format_of_rows"] = io::Json{
      {"list", keys.list},
      {"role", keys.role},
      {"text", keys.text},
      {"other_roles", keys.other_roles},
      {"reads", keys.reads},
      {"unused", format_.unused},
      {"unordered", format_.unordered},
      {"first_unordered",
       format_.first_unordered}}.dump();
  io::Json bad = io::Json::array();
  for (const auto& [index, error] : bad_)
    bad.push_back(io::Json::array({index, stored_error(error)}));
  const std::string text = io::json_text(bad);
  kept.set("bad", std::vector<uint8_t>(text.begin(), text.end()));
  kept.save(path);
}

}  // namespace lft::data
