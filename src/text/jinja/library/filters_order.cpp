// Filters that order or group by keys. By default texts are compared ignoring case.
#include <algorithm>

#include "src/text/jinja/library/access.h"
#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/iterate.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

struct Keyed {
  Value key, value;
};

Value without_case(const Value& value, Work& work) {
  return value.is_text() ? make_text(to_lower(value.bytes()), work) : value;
}

Value key_of(const Value& value, bool case_sensitive, Work& work) {
  return case_sensitive ? value : without_case(value, work);
}

void sort_by_key(std::vector<Keyed>* items, bool reverse, Work& work) {
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key, work) : less(a.key, b.key, work);
  });
}

/// Splits "a,b.c" into attribute paths.
std::vector<AttributePath> paths_of(const Value& attribute, Work& work) {
  if (!attribute.is_text()) return {AttributePath(attribute, work)};
  std::vector<AttributePath> paths;
  std::string_view rest = attribute.bytes();
  while (true) {
    const size_t comma = rest.find(',');
    paths.emplace_back(make_text(std::string(rest.substr(0, comma)), work), work);
    if (comma == std::string_view::npos) return paths;
    rest = rest.substr(comma + 1);
  }
}

Value do_sort(Arguments& arguments, Work& work) {
  const bool case_sensitive = flag_argument(arguments, 2, false);
  const auto paths = paths_of(arguments.has(3) ? arguments[3] : Value(), work);
  std::vector<Keyed> items;
  for (const Value& value : list_of(arguments[0], work)) {
    std::vector<Value> keys;
    keys.reserve(paths.size());
    for (const AttributePath& path : paths)
      keys.push_back(key_of(path.get(value, Value(), work), case_sensitive, work));
    items.push_back({Value::list(std::move(keys), work), value});
  }
  sort_by_key(&items, flag_argument(arguments, 1, false), work);
  std::vector<Value> out;
  out.reserve(items.size());
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return Value::list(std::move(out), work);
}

Value do_dictsort(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  if (!value.is(Kind::kDict))
    work.refuse("the filter dictsort gets what is no dict", type_name(value));
  const bool case_sensitive = flag_argument(arguments, 1, false);
  const std::string by(arguments.has(2) ? text_argument(arguments, 2, work).bytes() : "key");
  if (by != "key" && by != "value")
    work.refuse("the filter dictsort sorts by the key or by the value", by);
  std::vector<Keyed> items;
  for (const auto& [key, item] : value.dict().entries) {
    items.push_back(
        {key_of(by == "key" ? key : item, case_sensitive, work), Value::tuple({key, item}, work)});
  }
  sort_by_key(&items, flag_argument(arguments, 3, false), work);
  std::vector<Value> out;
  out.reserve(items.size());
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return Value::list(std::move(out), work);
}

Value do_unique(Arguments& arguments, Work& work) {
  const bool case_sensitive = flag_argument(arguments, 1, false);
  const AttributePath path(arguments.has(2) ? arguments[2] : Value(), work);
  DictObject seen;
  std::vector<Value> out;
  Iteration iteration(arguments[0], work);
  for (Value item; iteration.next(&item);) {
    const Value key = key_of(path.get(item, Value(), work), case_sensitive, work);
    check_hashable(key, work);
    if (seen.find(key, work) != nullptr) continue;
    seen.set(key, Value::none(), work);
    out.push_back(item);
  }
  return make_iterator(std::move(out), work);
}

Value extreme(const Arguments& arguments, bool largest, Work& work) {
  const bool case_sensitive = flag_argument(arguments, 1, false);
  const AttributePath path(arguments.has(2) ? arguments[2] : Value(), work);
  Value best = Value::undefined(), best_key;
  Iteration iteration(arguments[0], work);
  for (Value item; iteration.next(&item);) {
    Value key = key_of(path.get(item, Value(), work), case_sensitive, work);
    if (!best_key.is_missing() &&
        !(largest ? less(best_key, key, work, ">") : less(key, best_key, work)))
      continue;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value do_min(Arguments& arguments, Work& work) { return extreme(arguments, false, work); }
Value do_max(Arguments& arguments, Work& work) { return extreme(arguments, true, work); }

Value make_group(const Value& key, std::vector<Value> values, Work& work) {
  work.take(sizeof(ListObject));
  auto group = std::make_shared<ListObject>();
  group->is_group = true;
  group->items = {key, Value::list(std::move(values), work)};
  for (const Value& item : group->items) nest(group.get(), item, work);
  return Value(Kind::kTuple, std::move(group));
}

Value do_groupby(Arguments& arguments, Work& work) {
  const AttributePath path(arguments[1], work);
  const Value otherwise = arguments.has(2) ? arguments[2] : Value();
  const bool case_sensitive = flag_argument(arguments, 3, false);
  std::vector<Keyed> items;
  for (const Value& value : list_of(arguments[0], work))
    items.push_back({key_of(path.get(value, otherwise, work), case_sensitive, work), value});
  sort_by_key(&items, false, work);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    std::vector<Value> values;
    size_t end = begin;
    for (; end < items.size() && equals(items[begin].key, items[end].key, work); ++end)
      values.push_back(items[end].value);
    if (end == begin) ++end;  // a key that is not equal to itself
    const Value key = path.get(items[begin].value, otherwise, work);
    groups.push_back(make_group(key, std::move(values), work));
    begin = end;
  }
  return Value::list(std::move(groups), work);
}

}  // namespace

std::vector<Builtin> order_filters() {
  return {{"sort", "value reverse? case_sensitive? attribute?", do_sort},
          {"dictsort", "value case_sensitive? by? reverse?", do_dictsort},
          {"unique", "value case_sensitive? attribute?", do_unique},
          {"min", "value case_sensitive? attribute?", do_min},
          {"max", "value case_sensitive? attribute?", do_max},
          {"groupby", "value attribute default? case_sensitive?", do_groupby}};
}

}  // namespace lft::text::jinja
