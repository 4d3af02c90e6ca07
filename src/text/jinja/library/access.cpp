#include "src/text/jinja/library/access.h"

#include <algorithm>

#include "src/text/jinja/library/methods.h"
#include "src/text/jinja/value/items.h"

namespace lft::text::jinja {
namespace {

[[noreturn]] void into_undefined(const Value& value, Work& work) {
  work.refuse("the chat template looks into a value that is undefined", value.name(), {},
              "give the template this value, or use another template");
}

Value range_attribute(const RangeObject& range, std::string_view name) {
  if (name == "start") return Value::of(range.start);
  if (name == "stop") return Value::of(range.stop);
  if (name == "step") return Value::of(range.step);
  return Value::undefined();
}

Value group_attribute(const ListObject& group, std::string_view name) {
  if (!group.is_group) return Value::undefined();
  if (name == "grouper") return group.items[0];
  if (name == "list") return group.items[1];
  return Value::undefined();
}

/// Python attributes that lft does not have.
bool is_number_attribute(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "real",       "imag",      "numerator", "denominator", "conjugate",
      "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
      "is_integer", "hex",       "fromhex"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

Value make_method(const Value& receiver, const Builtin& method, Work& work) {
  if (method.run == unsafe_method) return Value::undefined(method.name);
  if (receiver.is_marked()) work.unsupported("method of a text marked by", "safe");
  work.take(sizeof(MethodObject));
  auto object = std::make_shared<MethodObject>();
  nest(object.get(), receiver, work);
  object->receiver = receiver;
  object->builtin = &method;
  return Value(Kind::kMethod, std::move(object));
}

Value builtin_attribute(const Value& value, std::string_view name, Work& work) {
  if (const Builtin* method = find_method(value.kind(), name))
    return make_method(value, *method, work);
  switch (value.kind()) {
    case Kind::kNamespace: {
      const Value* found = value.object<NamespaceObject>().attributes.find(name);
      return found == nullptr ? Value::undefined() : *found;
    }
    case Kind::kRange:
      return range_attribute(value.object<RangeObject>(), name);
    case Kind::kTuple:
      return group_attribute(value.object<ListObject>(), name);
    case Kind::kCycler: {
      const auto& cycler = value.object<CyclerObject>();
      return name == "current" ? cycler.items[cycler.at] : Value::undefined();
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (is_number_attribute(name)) work.unsupported("attribute of a number", std::string(name));
      return Value::undefined();
    default:
      return Value::undefined();
  }
}

Value get_attribute(const Value& value, std::string_view name, Work& work) {
  if (value.is_undefined()) into_undefined(value, work);
  Value found = builtin_attribute(value, name, work);
  if (!found.is_undefined() || !value.is(Kind::kDict)) return found;
  const Value* item = value.dict().find(name);
  return item == nullptr ? found : *item;
}

Value get_item(const Value& value, const Value& key, Work& work) {
  if (value.is_undefined()) into_undefined(value, work);
  Value found = item_at(value, key, work);
  if (!found.is_missing()) return found;
  return key.is_text() ? builtin_attribute(value, key.bytes(), work) : Value::undefined();
}

AttributePath::AttributePath(const Value& attribute, Work& work) {
  if (attribute.is_missing() || attribute.is(Kind::kNone)) return;
  if (!attribute.is_text()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.bytes();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_number =
        !part.empty() && part.size() < 18 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(is_number ? Value::of(int64_t{std::stoll(std::string(part))})
                               : make_text(std::string(part), work));
    if (dot == std::string_view::npos) return;
    rest = rest.substr(dot + 1);
  }
}

Value AttributePath::get(const Value& value, const Value& otherwise, Work& work) const {
  Value out = value;
  for (const Value& part : parts_) {
    out = get_item(out, part, work);
    if (out.is_undefined() && !otherwise.is_missing() && !otherwise.is(Kind::kNone))
      out = otherwise;
  }
  return out;
}

}  // namespace lft::text::jinja
