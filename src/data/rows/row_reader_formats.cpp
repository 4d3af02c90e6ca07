// Parses one row: its dialogue, its images and the other keys that lft reads.
#include <cmath>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/arrow_module/module.h"
#include "src/data/rows/row_columns.h"
#include "src/data/rows/row_images.h"
#include "src/data/rows/row_label.h"
#include "src/data/rows/row_messages.h"
#include "src/data/rows/row_pairs.h"
#include "src/data/rows/row_reader.h"

namespace lft::data {
namespace {

bool says_nothing(const io::Json& json) { return json.is_null() || json == ""; }

void add_image(std::vector<std::string>& images, const io::Json& image, const std::string& key,
               RowKeyCheck& check, const std::string& where) {
  if (says_nothing(image)) return;
  const io::Json& name = image_name(image, check, where);
  if (says_nothing(name)) return;
  if (!name.is_string())
    refuse(ErrorKind::kInput, "field \"" + key + "\" names no file", where, describe(name),
           "a file name");
  images.push_back(name.get<std::string>());
}

/// "image" or "images", one or a list, each a name or {"path": name}; null, "" and absent mean
/// none.
std::vector<std::string> row_images(const io::Json& row, RowKeyCheck& check,
                                    const std::string& where) {
  std::vector<std::string> images;
  const auto names_some = [&](const char* key) {
    const auto at = row.find(key);
    return at != row.end() && !says_nothing(*at) && *at != io::Json::array();
  };
  const bool one = names_some("image"), many = names_some("images");
  if (one && many)
    refuse(ErrorKind::kInput, "both \"image\" and \"images\"", where, {}, "one of them");
  if (!one && !many) return images;
  const std::string key = one ? "image" : "images";
  const io::Json& value = row[key];
  if (value.is_array()) {
    for (const io::Json& image : value) add_image(images, image, key, check, where);
  } else {
    add_image(images, value, key, check, where);
  }
  return images;
}

/// Images embedded in the row are extracted; web addresses are refused.
void take_uris(Row& row) {
  for (std::string& name : row.images) {
    if (std::optional<RowImage> image = image_in_name(name, row.where)) {
      name = image->name;
      row.inside.push_back(std::move(*image));
    } else {
      name = path_of_name(name, row.where);
    }
  }
}

/// "answers": further correct answers for metrics, in addition to the conversation's.
std::vector<std::string> row_answers(const io::Json& row, const std::string& where) {
  const io::Json list = row.value("answers", io::Json());
  if (has_nothing(list)) return {};
  if (!list.is_array())
    refuse(ErrorKind::kInput, "field \"answers\" is not a list", where, describe(list),
           "a list of texts");
  return answer_texts(list, "answers", where);
}

std::string row_id(const io::Json& row, int64_t index, const std::string& where) {
  const auto at = row.find("id");
  if (at == row.end() || at->is_null()) return std::to_string(index);
  if (at->is_string()) return at->get<std::string>();
  if (is_unnamed(*at)) return (*at)[kArrowPrinted].get<std::string>();
  if (at->is_number_float()) {                   // pandas writes 1.0 for 1
    constexpr double kExact = 9007199254740992;  // 2^53: JSON readers round larger numbers
    const double number = at->get<double>();
    if (std::abs(number) >= kExact)
      refuse(ErrorKind::kInput, "field \"id\" is a number too large to be read exactly", where,
             describe(*at), "a text, or a whole number below 2^63", "write the id in quotes");
    if (number == std::floor(number)) return std::to_string(static_cast<int64_t>(number));
    return at->dump();
  }
  if (!at->is_number_integer())
    refuse(ErrorKind::kInput, "field \"id\" is no id", where, describe(*at), "a text or a number");
  return at->dump();
}

/// Only the last answer of a side is trained on.
void learn_last_answer(Row& side) {
  std::vector<text::Message>& messages = side.conversation.messages;
  for (size_t i = 0; i + 1 < messages.size(); ++i) messages[i].learnt = false;
}

/// The chosen side with the rejected one. The keys are those of the chosen side.
Row parse_pair(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
               const RowRules& rules) {
  if (!is_pair(json))
    refuse(ErrorKind::kInput, "a row without a second answer, under an objective of pairs", where,
           json.is_object() ? key_names(json) : describe(json),
           "\"chosen\" and \"rejected\", or \"rejected_response\" next to \"messages\"",
           "set objective.name: sft to train on single answers");
  const PairRows sides = split_pair(json, where);
  RowRules single = rules;
  single.pairs = false;
  Row row = parse_row(sides.chosen, where, index, keys, single);
  RowKeys other;
  other.mapped = keys.mapped;
  Row rejected = parse_row(sides.rejected, where, index, other, single);
  learn_last_answer(row);
  learn_last_answer(rejected);
  rejected.id = row.id + " (rejected)";
  row.rejected = std::make_shared<const Row>(std::move(rejected));
  return row;
}

Row parse_labelled(io::Json json, const std::string& where, int64_t index, RowKeys& keys,
                   const RowRules& rules) {
  const bool desirable = take_label(json, where);
  RowRules single = rules;
  single.labelled = false;
  Row row = parse_row(json, where, index, keys, single);
  learn_last_answer(row);
  row.desirable = desirable;
  return row;
}

}  // namespace

std::string RowKeys::format() const {
  if (list == kColumns) return "rows of " + join(reads);
  if (list == "messages") return "format OpenAI messages";
  if (list == "prompt") return "format TRL prompt and completion";
  return role == "from" && !other_roles ? "format LLaVA" : "format ShareGPT";
}

Row parse_row(const io::Json& json, const std::string& where, int64_t index, RowKeys& keys,
              const RowRules& rules, const nlohmann::ordered_json* ordered) {
  if (rules.pairs) return parse_pair(json, where, index, keys, rules);
  if (rules.labelled) return parse_labelled(json, where, index, keys, rules);
  std::set<std::string> mapped = std::move(keys.mapped);
  keys = recognise(json, rules.columns, where);
  keys.mapped = std::move(mapped);
  RowKeyCheck check(rules.count_unknown, rules.count_marks);
  std::vector<std::string> used = dialogue_keys(keys);
  used.insert(used.begin(), {"id", "image", "images", "answers"});
  check.look(json, used, "", where);
  Row row;
  row.id = row_id(json, index, where);
  row.where = where;
  row.images = row_images(json, check, where);
  RowMessages messages = read_messages(json, keys, check, rules, where, ordered);
  row.conversation = std::move(messages.conversation);
  row.answers = row_answers(json, where);
  if (row.answers.empty()) row.answers = std::move(messages.answers);
  keys.unused = check.unused();
  if (!row.images.empty() && !messages.images.empty())
    refuse(ErrorKind::kInput, "images both in the row's list and in the parts of a message", where,
           {}, "one of them");
  row.images.insert(row.images.end(), messages.images.begin(), messages.images.end());
  take_uris(row);
  return row;
}

}  // namespace lft::data
