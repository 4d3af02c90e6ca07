// Filters for whole lists and dicts, and for any value.
#include <algorithm>

#include "src/text/jinja/library/access.h"
#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/library/tojson.h"
#include "src/text/jinja/value/arithmetic.h"
#include "src/text/jinja/value/items.h"
#include "src/text/jinja/value/iterate.h"
#include "src/text/jinja/value/print.h"

namespace lft::text::jinja {
namespace {

Value do_length(Arguments& arguments, Work& work) {
  const int64_t length = length_of(arguments[0]);
  if (length < 0) {
    work.refuse("the chat template asks for the length of what has none",
                std::string("a ") + type_name(arguments[0]), {},
                "pipe it through `list` first in the chat template");
  }
  return Value::of(length);
}

Value do_first(Arguments& arguments, Work& work) {
  Value first = Value::undefined();
  Iteration(arguments[0], work).next(&first);
  return first;
}

Value do_last(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  if (value.is(Kind::kIterator) || length_of(value) < 0)
    work.refuse("the filter last gets what has no last element", type_name(value));
  if (value.is(Kind::kDict) || value.is(Kind::kView)) {
    const std::vector<Value> items = list_of(value, work);
    return items.empty() ? Value::undefined() : items.back();
  }
  const Value last = item_at(value, Value::of(int64_t{-1}), work);
  return last.is_missing() ? Value::undefined() : last;
}

Value do_list(Arguments& arguments, Work& work) {
  return Value::list(list_of(arguments[0], work), work);
}

Value do_join(Arguments& arguments, Work& work) {
  const Text separator = arguments.has(1) ? text_of(arguments[1], work) : Text();
  const AttributePath path(arguments.has(2) ? arguments[2] : Value(), work);
  TextBuilder out(work);
  Iteration iteration(arguments[0], work);
  bool first = true;
  for (Value item; iteration.next(&item);) {
    if (!first) out.append(separator);
    first = false;
    print(path.get(item, Value(), work), &out);
  }
  return Value::of(out.finish());
}

Value do_reverse(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  if (value.is_text()) return Value::of(reversed(value.text(), work));
  const bool stays_list = value.is(Kind::kIterator);
  std::vector<Value> items = list_of(value, work);
  std::reverse(items.begin(), items.end());
  return stays_list ? Value::list(std::move(items), work) : make_iterator(std::move(items), work);
}

Value do_items(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  if (value.is_undefined()) return make_iterator({}, work);
  if (!value.is(Kind::kDict))
    work.refuse("the filter items gets what is no dict", type_name(value));
  std::vector<Value> items;
  for (const auto& [key, item] : value.dict().entries)
    items.push_back(Value::tuple({key, item}, work));
  return make_iterator(std::move(items), work);
}

Value do_default(Arguments& arguments, Work&) {
  const Value& value = arguments[0];
  if (!value.is_undefined() && (!flag_argument(arguments, 2, false) || truth(value))) return value;
  return arguments.has(1) ? arguments[1] : Value::of(Text());
}

Value do_attr(Arguments& arguments, Work& work) {
  const Text name = text_argument(arguments, 1, work);
  if (arguments[0].is_undefined()) return Value::undefined();
  return builtin_attribute(arguments[0], name.bytes(), work);
}

Value do_batch(Arguments& arguments, Work& work) {
  const int64_t size = integer_argument(arguments, 1, 1, work);
  std::vector<Value> rows, row;
  Iteration iteration(arguments[0], work);
  for (Value item; iteration.next(&item);) {
    if (static_cast<int64_t>(row.size()) == size)
      rows.push_back(Value::list(std::exchange(row, {}), work));
    row.push_back(item);
  }
  if (!row.empty()) {
    const int64_t missing = size - static_cast<int64_t>(row.size());
    if (arguments.is_set(2) && missing > 0) {
      work.take_many(static_cast<uint64_t>(missing), sizeof(Value));
      row.insert(row.end(), static_cast<size_t>(missing), arguments[2]);
    }
    rows.push_back(Value::list(std::move(row), work));
  }
  return make_iterator(std::move(rows), work);
}

Value do_slice(Arguments& arguments, Work& work) {
  const std::vector<Value> items = list_of(arguments[0], work);
  const int64_t count = integer_argument(arguments, 1, 1, work);
  if (count == 0) work.refuse("the chat template divides by zero");
  work.take_many(static_cast<uint64_t>(std::max<int64_t>(count, 0)), sizeof(Value));
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> slices;
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = length / count + (i < length % count ? 1 : 0);
    std::vector<Value> slice(items.begin() + at, items.begin() + at + size);
    at += size;
    if (arguments.is_set(2) && i >= length % count) slice.push_back(arguments[2]);
    slices.push_back(Value::list(std::move(slice), work));
  }
  return make_iterator(std::move(slices), work);
}

Value do_sum(Arguments& arguments, Work& work) {
  const AttributePath path(arguments.has(1) ? arguments[1] : Value(), work);
  Value sum = arguments.has(2) ? arguments[2] : Value::of(int64_t{0});
  if (sum.is_text()) work.refuse("the filter sum adds no texts", {}, {}, "use the filter join");
  Iteration iteration(arguments[0], work);
  for (Value item; iteration.next(&item);)
    sum = calculate(Operator::kAdd, sum, path.get(item, Value(), work), work);
  return sum;
}

}  // namespace

std::vector<Builtin> list_filters() {
  return {{"length", "-obj", do_length},
          {"count", "-obj", do_length},
          {"first", "seq", do_first},
          {"last", "seq", do_last},
          {"list", "value", do_list},
          {"join", "value d? attribute?", do_join},
          {"reverse", "value", do_reverse},
          {"items", "value", do_items},
          {"default", "value default_value? boolean?", do_default},
          {"d", "value default_value? boolean?", do_default},
          {"attr", "obj name", do_attr},
          {"batch", "value linecount fill_with?", do_batch},
          {"slice", "value slices fill_with?", do_slice},
          {"sum", "iterable attribute? start?", do_sum},
          {"tojson", "x ensure_ascii? indent? separators? sort_keys?", do_tojson}};
}

}  // namespace lft::text::jinja
