#include "src/data/rows/row_json.h"

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/arrow_module/module.h"

namespace lft::data {

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
