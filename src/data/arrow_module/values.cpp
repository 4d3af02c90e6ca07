#include "src/data/arrow_module/values.h"

#include <nlohmann/json.hpp>

namespace lft::data {
namespace {

using Json = nlohmann::json;

constexpr const char* kDialogues[] = {"messages", "conversations", "texts"};

/// The ending of a file of these bytes, by their first ones.
std::string image_ending(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return "jpg";
  if (bytes.starts_with("\x89PNG")) return "png";
  if (bytes.starts_with("RIFF")) return "webp";
  if (bytes.starts_with("BM")) return "bmp";
  if (bytes.starts_with("GIF8")) return "gif";
  return "tif";
}

/// One row's values as JSON.
class RowValues {
 public:
  RowValues(ArrowRow& row, const ArrowLimits& limits) : row_(row), limits_(limits) {}

  Json value(const arrow::Array& array, int64_t i) {
    if (array.IsNull(i)) return nullptr;
    switch (array.type_id()) {
      case arrow::Type::BOOL:
        return static_cast<const arrow::BooleanArray&>(array).Value(i);
      case arrow::Type::STRING:
        return text(static_cast<const arrow::StringArray&>(array).GetView(i));
      case arrow::Type::LARGE_STRING:
        return text(static_cast<const arrow::LargeStringArray&>(array).GetView(i));
      case arrow::Type::STRING_VIEW:
        return text(static_cast<const arrow::StringViewArray&>(array).GetView(i));
      case arrow::Type::BINARY:
        return image(static_cast<const arrow::BinaryArray&>(array).GetView(i));
      case arrow::Type::LARGE_BINARY:
        return image(static_cast<const arrow::LargeBinaryArray&>(array).GetView(i));
      case arrow::Type::BINARY_VIEW:
        return image(static_cast<const arrow::BinaryViewArray&>(array).GetView(i));
      case arrow::Type::LIST:
        return list(static_cast<const arrow::ListArray&>(array), i);
      case arrow::Type::LARGE_LIST:
        return list(static_cast<const arrow::LargeListArray&>(array), i);
      case arrow::Type::FIXED_SIZE_LIST:
        return list(static_cast<const arrow::FixedSizeListArray&>(array), i);
      case arrow::Type::STRUCT:
        return fields(static_cast<const arrow::StructArray&>(array), i);
      case arrow::Type::DICTIONARY: {
        const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
        return value(*coded.dictionary(), coded.GetValueIndex(i));
      }
      default:
        return other(array, i);
    }
  }

 private:
  Json text(std::string_view bytes) {
    count(bytes.size());
    return std::string(bytes);
  }

  /// Numbers, and what JSON has no name for as Arrow writes it.
  static Json other(const arrow::Array& array, int64_t i) {
    const auto scalar = array.GetScalar(i);
    if (!scalar.ok())
      throw ArrowFailure{"a value that cannot be read", scalar.status().message(), "", ""};
    const std::string written = (*scalar)->ToString();
    if (!arrow::is_integer(array.type_id()) && !arrow::is_floating(array.type_id())) return written;
    const Json number = Json::parse(written, nullptr, /*allow_exceptions=*/false);
    return number.is_number() ? number : Json(written);
  }

  template <class Array>
  Json list(const Array& array, int64_t i) {
    Json items = Json::array();
    const int64_t begin = array.value_offset(i), end = begin + array.value_length(i);
    for (int64_t k = begin; k < end; ++k) items.push_back(value(*array.values(), k));
    return items;
  }

  /// An object with bytes is an image, else its path or what it is.
  Json fields(const arrow::StructArray& array, int64_t i) {
    const auto bytes = array.GetFieldByName("bytes");
    if (bytes != nullptr && bytes->IsValid(i) && arrow::is_base_binary_like(bytes->type_id()))
      return value(*bytes, i);
    Json object = Json::object();
    for (int k = 0; k < array.num_fields(); ++k)
      object[array.struct_type()->field(k)->name()] = value(*array.field(k), i);
    return object;
  }

  Json image(std::string_view bytes) {
    if (bytes.size() > limits_.image_bytes)
      throw ArrowFailure{"an image that is too large", std::to_string(bytes.size()) + " bytes",
                         "at most " + std::to_string(limits_.image_bytes) + " bytes", ""};
    const std::string name = std::to_string(row_.images.size()) + "." + image_ending(bytes);
    row_.images.push_back({name, std::string(bytes)});
    return name;
  }

  void count(uint64_t bytes) {
    text_bytes_ += bytes;
    if (text_bytes_ <= limits_.json_bytes) return;
    throw ArrowFailure{"a row that is too long",
                       "more than " + std::to_string(limits_.json_bytes) + " bytes of text",
                       "at most " + std::to_string(limits_.json_bytes), ""};
  }

  ArrowRow& row_;
  const ArrowLimits& limits_;
  uint64_t text_bytes_ = 0;
};

/// The Cauldron's turns as a conversation: {user, assistant, source}, the images before the first
/// question.
void take_cauldron(Json& row, size_t images) {
  const auto texts = row.find("texts");
  if (texts == row.end() || !texts->is_array() || row.contains("messages") ||
      row.contains("conversations"))
    return;
  Json turns = Json::array();
  for (const Json& text : *texts) {
    if (!text.is_object() || !text.value("user", Json()).is_string() ||
        !text.value("assistant", Json()).is_string()) {
      throw ArrowFailure{"an element of \"texts\" without a question or an answer",
                         text.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80),
                         "{user, assistant, source}", ""};
    }
    std::string marks;
    for (size_t i = 0; turns.empty() && i < images; ++i) marks += "<image>\n";
    turns.push_back({{"from", "human"}, {"value", marks + text["user"].get<std::string>()}});
    turns.push_back({{"from", "gpt"}, {"value", text["assistant"]}});
  }
  row.erase("texts");
  row["conversations"] = std::move(turns);
}

}  // namespace

void check_columns(const arrow::Schema& schema) {
  std::string names;
  for (const auto& field : schema.fields()) {
    for (const char* const dialogue : kDialogues) {
      if (field->name() == dialogue) return;
    }
    names += (names.empty() ? "" : ", ") + field->name();
  }
  throw ArrowFailure{
      "no column holds a dialogue", names.empty() ? "no columns" : "columns " + names,
      "messages, conversations or texts", "rename the column, or write the rows as JSON"};
}

ArrowRow arrow_row(const arrow::RecordBatch& batch, int64_t index, const ArrowLimits& limits) {
  ArrowRow row;
  RowValues values(row, limits);
  Json json = Json::object();
  for (int column = 0; column < batch.num_columns(); ++column)
    json[batch.column_name(column)] = values.value(*batch.column(column), index);
  take_cauldron(json, row.images.size());
  row.json = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return row;
}

}  // namespace lft::data
