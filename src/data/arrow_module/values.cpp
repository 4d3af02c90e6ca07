#include "src/data/arrow_module/values.h"

#include <arrow/util/utf8.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

namespace lft::data {
namespace {

using Json = nlohmann::json;

constexpr int kMostDepth = 64;  // nesting of a JSON text in a column

/// Columns of texts. Other names of such columns are known to the recipe alone.
constexpr const char* kTexts[] = {"messages",    "conversations", "texts",   "prompt", "completion",
                                  "question",    "answer",        "answers", "query",  "response",
                                  "instruction", "input",         "output",  "system", "caption",
                                  "text",        "choices",       "options", "label",  "history"};

/// The file extension for image bytes, by their first bytes; empty for other bytes.
std::string known_ending(std::string_view bytes) {
  if (bytes.starts_with("\xff\xd8\xff")) return "jpg";
  if (bytes.starts_with("\x89PNG")) return "png";
  const auto at = [&](size_t begin, size_t size) {
    return bytes.substr(std::min(begin, bytes.size()), size);
  };
  if (bytes.starts_with("RIFF") && at(8, 4) == "WEBP") return "webp";
  if (bytes.starts_with("BM") && at(6, 4) == std::string_view("\0\0\0\0", 4)) return "bmp";
  if (bytes.starts_with("GIF8")) return "gif";
  if (at(0, 4) == std::string_view("II*\0", 4) || at(0, 4) == std::string_view("MM\0*", 4))
    return "tif";
  if (at(4, 8) == "ftypavif" || at(4, 8) == "ftypavis") return "avif";
  constexpr std::string_view kHeif = "heic heix hevc hevx heim heis hevm hevs mif1 msf1";
  if (at(4, 4) == "ftyp" && kHeif.find(at(8, 4)) != std::string_view::npos) return "heic";
  if (bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
      (bytes[2] == '\n' || bytes[2] == ' '))
    return "ppm";
  return "";
}

bool holds_bytes(arrow::Type::type type) {
  return arrow::is_base_binary_like(type) || arrow::is_binary_view_like(type) ||
         type == arrow::Type::FIXED_SIZE_BINARY;
}

std::string uuid_text(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[static_cast<unsigned char>(bytes[i]) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(bytes[i]) & 15];
  }
  return text;
}

/// Numbers of all eleven types, converted through text. Arrow prints 2.0 as 2, which stays a
/// floating-point number. Non-finite numbers become null.
Json number(const arrow::Scalar& scalar) {
  const Json read = Json::parse(scalar.ToString(), nullptr, /*allow_exceptions=*/false);
  if (!read.is_number()) return {};
  return arrow::is_floating(scalar.type->id()) ? Json(read.get<double>()) : read;
}

/// Converts one row's values to JSON.
class RowValues {
 public:
  RowValues(ArrowRow& row, const ArrowLimits& limits) : row_(row), limits_(limits) {}

  /// A column's value. Texts stored as binary are recognised only in columns of texts.
  Json column(const std::string& name, const arrow::Array& array, int64_t i) {
    in_texts_ = std::ranges::find(kTexts, name) != std::end(kTexts);
    Json read = value(array, i);
    return in_texts_ ? list_of(std::move(read)) : read;
  }

 private:
  /// {"from": [...], "value": [...]}, as datasets writes a list of structs, converted to a list.
  static Json list_of(Json read) {
    const auto is_list = [&](const Json& each) {
      return each.is_array() && each.size() == read.begin()->size();
    };
    if (!read.is_object() || read.empty() || !std::ranges::all_of(read, is_list)) return read;
    Json items = Json::array();
    for (size_t at = 0; at < read.begin()->size(); ++at) {
      Json item = Json::object();
      for (const auto& [key, values] : read.items()) item[key] = values[at];
      items.push_back(std::move(item));
    }
    return items;
  }

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
        return bytes(static_cast<const arrow::BinaryArray&>(array).GetView(i));
      case arrow::Type::LARGE_BINARY:
        return bytes(static_cast<const arrow::LargeBinaryArray&>(array).GetView(i));
      case arrow::Type::BINARY_VIEW:
        return bytes(static_cast<const arrow::BinaryViewArray&>(array).GetView(i));
      case arrow::Type::LIST:
        return list(static_cast<const arrow::ListArray&>(array), i);
      case arrow::Type::LARGE_LIST:
        return list(static_cast<const arrow::LargeListArray&>(array), i);
      case arrow::Type::LIST_VIEW:
        return list(static_cast<const arrow::ListViewArray&>(array), i);
      case arrow::Type::LARGE_LIST_VIEW:
        return list(static_cast<const arrow::LargeListViewArray&>(array), i);
      case arrow::Type::FIXED_SIZE_LIST:
        return list(static_cast<const arrow::FixedSizeListArray&>(array), i);
      case arrow::Type::STRUCT:
        return fields(static_cast<const arrow::StructArray&>(array), i);
      case arrow::Type::DICTIONARY: {
        const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
        return value(*coded.dictionary(), coded.GetValueIndex(i));
      }
      case arrow::Type::MAP:
        return map(static_cast<const arrow::MapArray&>(array), i);
      case arrow::Type::EXTENSION:
        return extended(static_cast<const arrow::ExtensionArray&>(array), i);
      case arrow::Type::FIXED_SIZE_BINARY: {
        const auto bytes = static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i);
        return known_ending(bytes).empty() ? unnamed(array, i) : image(bytes);
      }
      case arrow::Type::RUN_END_ENCODED:
        return value_of(*static_cast<const arrow::RunEndEncodedScalar&>(*scalar(array, i)).value);
      case arrow::Type::DENSE_UNION:
        return value_of(*static_cast<const arrow::DenseUnionScalar&>(*scalar(array, i)).value);
      case arrow::Type::SPARSE_UNION:
        return value_of(
            *static_cast<const arrow::SparseUnionScalar&>(*scalar(array, i)).child_value());
      default:
        return other(array, i);
    }
  }

  Json text(std::string_view bytes) {
    count(bytes.size());
    return std::string(bytes);
  }

  static std::shared_ptr<arrow::Scalar> scalar(const arrow::Array& array, int64_t i) {
    auto scalar = array.GetScalar(i);
    if (!scalar.ok())
      throw ArrowFailure{"a value that cannot be read", scalar.status().message(), "", ""};
    return std::move(scalar).ValueUnsafe();
  }

  /// The value that a run-end or a union refers to.
  Json value_of(const arrow::Scalar& held) {
    const auto array = arrow::MakeArrayFromScalar(held, 1);
    if (!array.ok())
      throw ArrowFailure{"a value that cannot be read", array.status().message(), "", ""};
    return value(**array, 0);
  }

  static Json other(const arrow::Array& array, int64_t i) {
    if (arrow::is_integer(array.type_id()) || arrow::is_floating(array.type_id()))
      return number(*scalar(array, i));
    return unnamed(array, i);
  }

  /// The type is reported where the value is needed.
  static Json unnamed(const arrow::Array& array, int64_t i) {
    return {{kArrowType, array.type()->ToString()}, {kArrowPrinted, scalar(array, i)->ToString()}};
  }

  /// A map as a JSON object where its keys are strings.
  Json map(const arrow::MapArray& array, int64_t i) {
    if (!arrow::is_string(array.keys()->type_id())) return unnamed(array, i);
    Json object = Json::object();
    for (int64_t k = array.value_offset(i); k < array.value_offset(i) + array.value_length(i); ++k)
      object[value(*array.keys(), k).get<std::string>()] = value(*array.items(), k);
    return object;
  }

  /// JSON and boolean extensions as such; other extensions as their storage type, except those that
  /// mean more.
  Json extended(const arrow::ExtensionArray& array, int64_t i) {
    const std::string name = array.extension_type()->extension_name();
    const arrow::Array& storage = *array.storage();
    if (name == "arrow.json") {
      const std::optional<Json> read = json_text(value(storage, i));
      return read ? *read : unnamed(array, i);
    }
    if (name == "arrow.bool8") return value(storage, i) != 0;
    if (name == "arrow.uuid")
      return {{kArrowType, name},
              {kArrowPrinted,
               uuid_text(static_cast<const arrow::FixedSizeBinaryArray&>(storage).GetView(i))}};
    if (name.starts_with("arrow.") && name != "arrow.opaque") return unnamed(array, i);
    return name.starts_with("parquet.") ? unnamed(array, i) : value(storage, i);
  }

  /// Text that is not JSON, or is nested too deeply, has no value.
  static std::optional<Json> json_text(const Json& stored) {
    struct TooDeep {};
    const auto shallow = [](int depth, Json::parse_event_t, Json&) {
      return depth <= kMostDepth ? true : throw TooDeep();
    };
    try {
      Json read = Json::parse(stored.get_ref<const std::string&>(), shallow,
                              /*allow_exceptions=*/false);
      return read.is_discarded() ? std::nullopt : std::optional(std::move(read));
    } catch (const TooDeep&) {
      return std::nullopt;
    }
  }

  template <class Array>
  Json list(const Array& array, int64_t i) {
    Json items = Json::array();
    const int64_t begin = array.value_offset(i), end = begin + array.value_length(i);
    for (int64_t k = begin; k < end; ++k) items.push_back(value(*array.values(), k));
    return items;
  }

  /// A struct with bytes is an image; else its path or its value; without either, no image.
  Json fields(const arrow::StructArray& array, int64_t i) {
    const auto bytes = array.GetFieldByName("bytes"), path = array.GetFieldByName("path");
    const bool is_image = bytes != nullptr && holds_bytes(bytes->type_id());
    if (is_image && bytes->IsValid(i)) return value(*bytes, i);
    if (is_image && path != nullptr && array.num_fields() == 2) {
      const Json name = value(*path, i);
      return name.is_string() ? Json(kArrowPath + name.get<std::string>()) : name;
    }
    Json object = Json::object();
    for (int k = 0; k < array.num_fields(); ++k)
      object[array.struct_type()->field(k)->name()] = value(*array.field(k), i);
    return object;
  }

  /// An image, or, in a column of texts, a text whose column is not marked as UTF-8.
  Json bytes(std::string_view bytes) {
    const bool is_text =
        in_texts_ && known_ending(bytes).empty() && arrow::util::ValidateUTF8(bytes);
    return is_text ? text(bytes) : image(bytes);
  }

  Json image(std::string_view bytes) {
    if (bytes.size() > limits_.image_bytes)
      throw ArrowFailure{"an image that is too large", std::to_string(bytes.size()) + " bytes",
                         "at most " + std::to_string(limits_.image_bytes) + " bytes", ""};
    const std::string ending = known_ending(bytes);
    const std::string name =
        std::to_string(row_.images.size()) + "." + (ending.empty() ? "tif" : ending);
    row_.images.push_back({name, std::string(bytes)});
    return (ending.empty() ? kArrowBytes : kArrowImage) + name;
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
  bool in_texts_ = false;
};

/// The images of a row in "image" or "images".
size_t image_count(const Json& row) {
  for (const char* key : {"image", "images"}) {
    const auto images = row.find(key);
    if (images == row.end() || images->is_null()) continue;
    if (!images->is_array()) return 1;
    return static_cast<size_t>(
        std::ranges::count_if(*images, [](const Json& image) { return !image.is_null(); }));
  }
  return 0;
}

/// The Cauldron's turns, {user, assistant, source}, as a conversation with the images before the
/// first question.
void take_cauldron(Json& row) {
  const auto texts = row.find("texts");
  if (texts == row.end() || !texts->is_array() || row.contains("messages") ||
      row.contains("conversations"))
    return;
  const size_t images = image_count(row);
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

ArrowRow arrow_row(const arrow::RecordBatch& batch, int64_t index, const ArrowLimits& limits) {
  ArrowRow row;
  RowValues values(row, limits);
  Json json = Json::object();
  for (int column = 0; column < batch.num_columns(); ++column)
    json[batch.column_name(column)] =
        values.column(batch.column_name(column), *batch.column(column), index);
  take_cauldron(json);
  row.json = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return row;
}

}  // namespace lft::data
