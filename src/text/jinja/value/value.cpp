#include "src/text/jinja/value/value.h"

#include <algorithm>

#include "src/text/jinja/value/compare.h"

namespace lft::text::jinja {
namespace {

constexpr size_t kFewEntries = 8;  // searched linearly

Value make_sequence(Kind kind, std::vector<Value> items, Work& work) {
  work.take(sizeof(ListObject) + items.size() * sizeof(Value));
  auto list = std::make_shared<ListObject>();
  for (const Value& item : items) nest(list.get(), item, work);
  list->items = std::move(items);
  return Value(kind, std::move(list));
}

size_t hash_bytes(std::string_view bytes) { return std::hash<std::string_view>{}(bytes); }

}  // namespace

Value Value::list(std::vector<Value> items, Work& work) {
  return make_sequence(Kind::kList, std::move(items), work);
}

Value Value::tuple(std::vector<Value> items, Work& work) {
  return make_sequence(Kind::kTuple, std::move(items), work);
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() <= kFewEntries) {
    for (const auto& [known, value] : entries)
      if (known.is_text() && known.bytes() == key) return &value;
    return nullptr;
  }
  const auto [first, last] = index.equal_range(hash_bytes(key));
  for (auto at = first; at != last; ++at) {
    const auto& [known, value] = entries[at->second];
    if (known.is_text() && known.bytes() == key) return &value;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key, Work& work) const {
  if (key.is_text()) return find(key.bytes());
  if (entries.size() <= kFewEntries) {
    for (const auto& [known, value] : entries)
      if (equals(known, key, work)) return &value;
    return nullptr;
  }
  const auto [first, last] = index.equal_range(hash_of(key, work));
  for (auto at = first; at != last; ++at) {
    if (equals(entries[at->second].first, key, work)) return &entries[at->second].second;
  }
  return nullptr;
}

void DictObject::set(const Value& key, Value value, Work& work) {
  nest(this, key, work);
  nest(this, value, work);
  if (const Value* known = find(key, work)) {
    const_cast<Value&>(*known) = std::move(value);
    return;
  }
  work.take(sizeof(entries[0]) * 2);
  if (key.is_text()) return add(key, std::move(value));
  entries.emplace_back(key, std::move(value));
  if (entries.size() == kFewEntries + 1) {
    for (size_t i = 0; i + 1 < entries.size(); ++i)
      index.emplace(hash_of(entries[i].first, work), static_cast<uint32_t>(i));
  }
  if (entries.size() > kFewEntries)
    index.emplace(hash_of(key, work), static_cast<uint32_t>(entries.size() - 1));
}

void DictObject::add(Value key, Value value) {
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() <= kFewEntries) return;
  const size_t first_new = entries.size() == kFewEntries + 1 ? 0 : entries.size() - 1;
  for (size_t i = first_new; i < entries.size(); ++i)
    index.emplace(hash_bytes(entries[i].first.bytes()), static_cast<uint32_t>(i));
}

void nest(Object* object, const Value& inner, Work& work) {
  object->depth = std::max(object->depth, inner.depth() + 1);
  if (object->depth > kMaxValueDepth) {
    work.refuse("the chat template nests values too deeply",
                "more than " + std::to_string(kMaxValueDepth) + " levels");
  }
}

Value make_dict(std::shared_ptr<DictObject> dict) { return Value(Kind::kDict, std::move(dict)); }

Value make_iterator(std::vector<Value> items, Work& work) {
  work.take(sizeof(IteratorObject) + items.size() * sizeof(Value));
  auto iterator = std::make_shared<IteratorObject>();
  for (const Value& item : items) nest(iterator.get(), item, work);
  iterator->items = std::move(items);
  return Value(Kind::kIterator, std::move(iterator));
}

Value make_text(std::string bytes, Work& work) {
  work.take(bytes.size() + sizeof(TextBody));
  return Value::of(Text(std::move(bytes)));
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kView:
      return value.object<ViewObject>().part == ViewObject::Part::kKeys     ? "dict_keys"
             : value.object<ViewObject>().part == ViewObject::Part::kValues ? "dict_values"
                                                                            : "dict_items";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "";
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return value.text().points();
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kView:
      return length_of(value.object<ViewObject>().dict);
    case Kind::kRange:
      return value.object<RangeObject>().length;
    default:
      return -1;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.real() != 0;
    case Kind::kText:
      return !value.bytes().empty();
    default:
      return length_of(value) != 0;
  }
}

}  // namespace lft::text::jinja
