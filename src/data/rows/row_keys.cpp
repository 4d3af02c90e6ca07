#include "src/data/rows/row_keys.h"

#include <algorithm>
#include <iterator>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/arrow_module/module.h"

namespace lft::data {
namespace {

constexpr const char *kCountInstead = "; data.unknown_keys: warn counts such keys in a warning",
                     *kAsText = "; data.special_tokens_in_text: text reads such texts as they are";

/// Keys of other tools that lft does not support, and what to do instead. Always refused: without
/// them the row would have another meaning.
struct ForeignKey {
  const char *name, *instead;
};
constexpr const char *kStill = "lft reads still images: write single frames as images",
                     *kNoSound = "lft reads texts and images: take such rows out",
                     *kNoTools =
                         "OpenAI's \"tools\" and \"tool_calls\" are read: write them in that form",
                     *kNoPreference =
                         "a pair of answers is for an objective of pairs: set objective.name: dpo, "
                         "or take it out",
                     *kNoLabel =
                         "a label of an answer is for objective.name: kto: set it, or take it out",
                     *kNoBoxes = "lft fills no boxes into texts: write the coordinates as words",
                     *kNoWeights =
                         "lft weighs no rows: take the weights out; \"weight\" in a "
                         "source of data.train repeats rows",
                     *kWhole = "an answer is learnt or not: write \"loss\": true or false on it";
constexpr ForeignKey kForeign[] = {
    {"video", kStill},
    {"videos", kStill},
    {"audio", kNoSound},
    {"audios", kNoSound},
    {"objects", kNoBoxes},
    {"boxes", kNoBoxes},
    {"bbox", kNoBoxes},
    {"bboxes", kNoBoxes},
    {"weights", kNoWeights},
    {"loss_weight", kNoWeights},
    {"sample_weight", kNoWeights},
    {"system_prompt",
     "name it in the recipe: data.columns: {system: system_prompt}; or write the system text in "
     "\"system\""},
    {"functions", kNoTools},
    {"function_call", kNoTools},
    {"chosen", kNoPreference},
    {"rejected", kNoPreference},
    {"rejected_response", kNoPreference},
    {"rejected_messages", kNoPreference},
    {"kto_tag", kNoLabel},
    {"loss_scale", kWhole},
    {"train", kWhole},
    {"training", kWhole},
    {"train_detail", kWhole},
};
/// Marks of other tools for media and boxes.
constexpr const char* kForeignMarks[] = {"<video>", "<audio>", "<bbox>", "<ref-object>"};

constexpr char kForeignKey[] = "a key with a meaning that lft does not support",
               kForeignMark[] = "a mark of another tool, which would be trained on as it is",
               kOnlyImage[] = "no placeholder except <image>";

template <typename Names>
bool contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

const ForeignKey* find_foreign(const std::string& key) {
  const auto* const found =
      std::ranges::find_if(kForeign, [&](const ForeignKey& one) { return key == one.name; });
  return found == std::end(kForeign) ? nullptr : found;
}

}  // namespace

const std::vector<std::string>& metadata_keys() {
  static const std::vector<std::string> kKeys = {"id",
                                                 "_id",
                                                 "uid",
                                                 "uuid",
                                                 "idx",
                                                 "index",
                                                 "hash",
                                                 "sample_id",
                                                 "question_id",
                                                 "image_id",
                                                 "message_id",
                                                 "conversation_id",
                                                 "prompt_id",
                                                 "custom_id",
                                                 "unique_id",
                                                 "__index_level_0__",
                                                 "source",
                                                 "data_source",
                                                 "dataset",
                                                 "dataset_name",
                                                 "origin",
                                                 "url",
                                                 "license",
                                                 "split",
                                                 "model",
                                                 "model_name",
                                                 "language",
                                                 "lang",
                                                 "category",
                                                 "topic",
                                                 "task",
                                                 "task_type",
                                                 "question_type",
                                                 "tags",
                                                 "title",
                                                 "timestamp",
                                                 "created_at",
                                                 "create_time",
                                                 "metadata",
                                                 "meta",
                                                 "channel",
                                                 "width",
                                                 "height",
                                                 "width_list",
                                                 "height_list",
                                                 "detail"};
  return kKeys;
}

void RowKeyCheck::look(const io::Json& object, const std::vector<std::string>& used,
                       const std::string& level, const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (contains(used, key) || contains(metadata_keys(), key) || has_nothing(value)) continue;
    if (const ForeignKey* foreign = find_foreign(key); foreign != nullptr)
      refuse(ErrorKind::kInput, kForeignKey, where, quote_text(key, 60), {}, foreign->instead);
    const std::vector<std::string> near = closest_names(key, used, 1);
    count_or_refuse(
        counts_keys_, level + quote_text(key, 60),
        {"a key that lft does not use", where, quote_text(key, 60),
         join(used) + "; passed over are those of metadata, as " + join(metadata_keys(), ", ", 8),
         (near.empty() ? "remove it" : "write " + quote_text(near[0]) + ", or remove it") +
             kCountInstead});
  }
}

void RowKeyCheck::replaced(const std::string& key, const std::string& where) {
  count_or_refuse(
      counts_keys_, quote_text(key, 60),
      {"a column that another one replaces", where, quote_text(key, 60),
       "only the column that data.columns names", std::string("remove it") + kCountInstead});
}

void RowKeyCheck::look_into(std::string_view text, const std::string& where) {
  for (const char* mark : kForeignMarks) {
    if (text.find(mark) == std::string_view::npos) continue;
    count_or_refuse(counts_marks_, std::string(mark) + " in a text",
                    {kForeignMark, where, mark, kOnlyImage,
                     std::string("write out what it means, or remove such rows") + kAsText});
  }
}

void RowKeyCheck::image_mark(const std::string& mark, const std::string& where) {
  const std::string shown = escape_text(mark, 60);
  count_or_refuse(
      counts_marks_, "placeholders of other tools in rows without an image",
      {kForeignMark, where, shown + ", and no image in the row", kOnlyImage,
       "write \"<image>\\n\" in its place and name the file in \"image\" or \"images\"" +
           std::string(kAsText)});
}

void RowKeyCheck::json_text(const std::string& text, const std::string& where) {
  count_or_refuse(
      counts_marks_, "JSON texts in messages",
      {"a message that is a JSON text, which would be trained on as it is", where,
       quote_text(text, 80), "the text itself, or a list of parts",
       "write the value that the JSON text encodes (json.loads in Python)" + std::string(kAsText)});
}

void RowKeyCheck::count_or_refuse(bool counts, const std::string& counted, const ErrorInfo& error) {
  unused_.insert(counted);
  if (!counts) throw Error(ErrorKind::kInput, error);
}

bool has_nothing(const io::Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || (value.is_structured() && value.empty());
}

std::optional<bool> truth_of(const io::Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  const std::string word =
      value.is_string() ? lower_ascii(value.get_ref<const std::string&>()) : value.dump();
  if (word == "true" || word == "1" || word == "1.0") return true;
  if (word == "false" || word == "0" || word == "0.0") return false;
  return std::nullopt;
}

bool is_unnamed(const io::Json& json) {
  return json.is_object() && json.size() == 2 && json.contains(kArrowType) &&
         json.contains(kArrowPrinted) && json[kArrowType].is_string() &&
         json[kArrowPrinted].is_string();
}

std::string describe(const io::Json& json) {
  if (json.is_string()) return quote_text(json.get_ref<const std::string&>(), 60);
  if (is_unnamed(json))
    return "a value of Arrow type " +
           escape_text(json[kArrowType].get_ref<const std::string&>(), 80);
  if (json.is_object() || json.is_array())
    return std::string(json.empty() ? "an empty " : "an ") + json.type_name();
  return json.dump();
}

std::string key_names(const io::Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(quote_text(item.key(), 40));
  return names.empty() ? "no keys" : "keys " + join(names, ", ", 8);
}

const io::Json& member(const io::Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object() || is_unnamed(object))
    refuse(ErrorKind::kInput, "not a JSON object", where, describe(object),
           "an object with \"" + key + "\"");
  const auto at = object.find(key);
  if (at == object.end())
    refuse(ErrorKind::kInput, "field \"" + key + "\" is missing", where, key_names(object));
  return *at;
}

const io::Json& image_name(const io::Json& image, RowKeyCheck& check, const std::string& where) {
  if (!image.is_object() || is_unnamed(image)) return image;
  check.look(image, {"path", "url", "bytes"}, "image.", where);
  if (!image.value("bytes", io::Json()).is_null()) {
    refuse(ErrorKind::kInput, "an image as bytes inside its row", where, key_names(image),
           "a file name", "write the images to files and name them in \"path\"");
  }
  const bool has_path = !image.value("path", io::Json()).is_null();
  return member(image, has_path ? "path" : "url", where);
}

}  // namespace lft::data
