// The keys of a row that lft uses, those of metadata, and the treatment of all others: no content
// of a row is dropped silently.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/io/json.h"

namespace lft::data {

/// Checks the keys of one row. Empty keys (null, an empty text, list or object) and metadata are
/// ignored; a key with a meaning that lft does not support (videos, boxes, weights, preferences)
/// is always kInput.
class RowKeyCheck {
 public:
  /// With `counts_keys` a key that lft does not use is counted, with `counts_marks` a mark of
  /// another tool in a text; otherwise it is kInput.
  RowKeyCheck(bool counts_keys, bool counts_marks)
      : counts_keys_(counts_keys), counts_marks_(counts_marks) {}

  /// `level` is the path of such keys in every row: "" or "messages[].".
  void look(const io::Json& object, const std::vector<std::string>& used, const std::string& level,
            const std::string& where);
  /// A column that another one replaces by data.columns.
  void replaced(const std::string& key, const std::string& where);
  /// Marks of other tools for features that lft does not have: <video>, <bbox>.
  void look_into(std::string_view text, const std::string& where);
  /// A placeholder for an image in a row without images, and a text that is a JSON value.
  void image_mark(const std::string& mark, const std::string& where);
  void json_text(const std::string& text, const std::string& where);

  const std::set<std::string>& unused() const { return unused_; }

 private:
  void count_or_refuse(bool counts, const std::string& counted, const ErrorInfo& error);
  bool counts_keys_, counts_marks_;
  std::set<std::string> unused_;
};

/// Keys of metadata in data sets: ids, sources, sizes.
const std::vector<std::string>& metadata_keys();

/// null, an empty text, list or object.
bool has_nothing(const io::Json& value);
/// What a value means as true or false: a boolean, 0 or 1, or, as in files of columns, a text of
/// them. Empty for other values.
std::optional<bool> truth_of(const io::Json& value);
/// Whether it represents a value of a Parquet or Arrow file that has no JSON form.
bool is_unnamed(const io::Json& json);
std::string describe(const io::Json& json);
/// Formats a list of keys: 'keys "a", "b"'.
std::string key_names(const io::Json& object);
/// The value of a key; kInput if `object` is no object or lacks the key.
const io::Json& member(const io::Json& object, const std::string& key, const std::string& where);
/// The name in {"path": ...} or {"url": ...}, or a name itself. Pixels within the row ("bytes") are
/// not read.
const io::Json& image_name(const io::Json& image, RowKeyCheck& check, const std::string& where);

}  // namespace lft::data
