// Which keys of a row lft uses, which say nothing of training, and what becomes of all others:
// nothing that a row says is dropped without a word.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/error.h"
#include "src/io/json.h"

namespace lft::data {

/// Looks at the keys of one row. A key that holds nothing (null, an empty text, list or object) and
/// one of metadata is passed over; one of another kind of sample (videos, boxes, tools, a
/// preference) is kInput always.
class RowKeyCheck {
 public:
  /// With `counts` a key that lft does not use is counted, else it is kInput.
  explicit RowKeyCheck(bool counts) : counts_(counts) {}

  /// `level` names where such keys stand in every row: "" or "messages[].".
  void look(const io::Json& object, const std::vector<std::string>& used, const std::string& level,
            const std::string& where);
  /// Marks of other tools that stand for what lft does not have: <video>, <bbox>.
  void look_into(std::string_view text, const std::string& where);
  /// A placeholder for an image in a row that has none, and a text that is a value in JSON.
  void image_mark(const std::string& mark, const std::string& where);
  void json_text(const std::string& text, const std::string& where);

  const std::set<std::string>& unused() const { return unused_; }

 private:
  void count_or_refuse(const std::string& counted, const ErrorInfo& error);
  bool counts_;
  std::set<std::string> unused_;
};

/// Keys that data sets carry beside what is trained on: ids, sources, sizes.
const std::vector<std::string>& metadata_keys();

/// A value of a Parquet or Arrow file that JSON has no form for.
bool is_unnamed(const io::Json& json);
std::string describe(const io::Json& json);
/// 'keys "a", "b"'
std::string key_names(const io::Json& object);
/// kInput where `object` is no object or lacks the key.
const io::Json& member(const io::Json& object, const std::string& key, const std::string& where);
/// The name in {"path": ...} or {"url": ...}, or a name itself. Pixels within the row ("bytes") are
/// not read.
const io::Json& image_name(const io::Json& image, RowKeyCheck& check, const std::string& where);

}  // namespace lft::data
