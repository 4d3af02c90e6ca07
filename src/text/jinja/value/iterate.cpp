#include "src/text/jinja/value/iterate.h"

#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

Value view_item(const ViewObject& view, size_t at, Work& work) {
  const auto& [key, value] = view.dict.dict().entries[at];
  switch (view.part) {
    case ViewObject::Part::kKeys:
      return key;
    case ViewObject::Part::kValues:
      return value;
    default:
      return Value::tuple({key, value}, work);
  }
}

/// The element of a value that has a length and is not a text.
Value element(const Value& value, size_t at, Work& work) {
  switch (value.kind()) {
    case Kind::kDict:
      return value.dict().entries[at].first;
    case Kind::kView:
      return view_item(value.object<ViewObject>(), at, work);
    case Kind::kRange: {
      const auto& range = value.object<RangeObject>();
      return Value::of(range.start + static_cast<int64_t>(at) * range.step);
    }
    default:
      return value.items()[at];
  }
}

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kView:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

Iteration::Iteration(Value value, Work& work) : value_(std::move(value)), work_(work) {
  if (value_.is(Kind::kLoop)) work.unsupported("iteration over", "loop");
  if (!is_iterable(value_)) {
    work.refuse("the chat template goes through a value that has no elements",
                std::string("a ") + type_name(value_), "a list, a text, a dict ...");
  }
}

int64_t Iteration::left() const {
  if (value_.is(Kind::kIterator)) return -1;
  if (value_.is_text()) {
    const Text text = value_.text();
    return count_points(text.bytes().substr(static_cast<size_t>(at_)));
  }
  return length_of(value_) - at_;
}

bool Iteration::next(Value* item) {
  work_.step();
  switch (value_.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText: {
      const Text text = value_.text();
      const auto begin = static_cast<size_t>(at_);
      if (begin >= text.size()) return false;
      const size_t end = skip_points(text.bytes(), begin, 1);
      *item = Value::of(text.slice(begin, end, work_));
      at_ = static_cast<int64_t>(end);
      return true;
    }
    case Kind::kIterator: {
      auto& iterator = value_.changing<IteratorObject>();
      if (iterator.at >= iterator.items.size()) return false;
      *item = iterator.items[iterator.at++];
      return true;
    }
    default:
      if (at_ >= length_of(value_)) return false;
      *item = element(value_, static_cast<size_t>(at_++), work_);
      return true;
  }
}

std::vector<Value> list_of(const Value& value, Work& work) {
  if (value.is_sequence()) {
    work.take(value.items().size() * sizeof(Value));
    return value.items();
  }
  std::vector<Value> items;
  Iteration iteration(value, work);
  for (Value item; iteration.next(&item);) {
    work.take(sizeof(Value));
    items.push_back(item);
  }
  return items;
}

}  // namespace lft::text::jinja
