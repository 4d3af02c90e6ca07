// Converts a caller's JSON to values.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/text/jinja/value/value.h"

namespace lft::text::jinja {
namespace {

using OrderedJson = nlohmann::ordered_json;

Value read_json(const OrderedJson& json, int32_t* source, int depth);

int32_t next_number(int32_t* source) { return *source < 0 ? -1 : (*source)++; }

Value read_array(const OrderedJson& json, int32_t* source, int depth) {
  auto list = std::make_shared<ListObject>();
  list->items.reserve(json.size());
  for (const OrderedJson& item : json) {
    list->items.push_back(read_json(item, source, depth + 1));
    list->depth = std::max(list->depth, list->items.back().depth() + 1);
  }
  return Value(Kind::kList, std::move(list));
}

Value read_object(const OrderedJson& json, int32_t* source, int depth) {
  auto dict = std::make_shared<DictObject>();
  dict->entries.reserve(json.size());
  for (const auto& [key, item] : json.items()) {
    dict->add(Value::of(Text(key)), read_json(item, source, depth + 1));
    dict->depth = std::max(dict->depth, dict->entries.back().second.depth() + 1);
  }
  return Value(Kind::kDict, std::move(dict));
}

Value read_json(const OrderedJson& json, int32_t* source, int depth) {
  if (depth > kMaxValueDepth / 2)
    refuse(ErrorKind::kInput, "a value for the chat template is nested too deeply", {});
  const int32_t number = next_number(source);
  switch (json.type()) {
    case OrderedJson::value_t::string:
      return Value::of(Text(json.get<std::string>(), number));
    case OrderedJson::value_t::array:
      return read_array(json, source, depth).with_source(number);
    case OrderedJson::value_t::object:
      return read_object(json, source, depth).with_source(number);
    case OrderedJson::value_t::boolean:
      return Value::of(json.get<bool>()).with_source(number);
    case OrderedJson::value_t::number_float:
      return Value::of(json.get<double>()).with_source(number);
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        refuse(ErrorKind::kInput, "a number for the chat template has more than 64 bits", {},
               json.dump());
      [[fallthrough]];
    case OrderedJson::value_t::number_integer:
      return Value::of(json.get<int64_t>()).with_source(number);
    default:
      return Value::none().with_source(number);
  }
}

}  // namespace

Value Value::from_json(const OrderedJson& json, int32_t* source) {
  return read_json(json, source, 0);
}

}  // namespace lft::text::jinja
