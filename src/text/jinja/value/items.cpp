#include "src/text/jinja/value/items.h"

#include <algorithm>

#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

struct Bounds {
  int64_t start, step, count;
  int64_t at(int64_t i) const { return i == 0 ? start : start + i * step; }
};

int64_t bound_of(const Value& value, Work& work) {
  if (value.is_integral()) return value.integer();
  work.refuse("the chat template slices by what is no integer", type_name(value),
              "an integer or none");
}

/// Implements Python's slice.indices().
Bounds bounds_of(const Slice& slice, int64_t length, Work& work) {
  const auto given = [](const Value& value) {
    return !value.is_missing() && !value.is(Kind::kNone);
  };
  const int64_t step = given(slice.step) ? bound_of(slice.step, work) : 1;
  if (step == 0) work.refuse("the chat template slices by a step of 0");
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  const auto clamp = [&](const Value& value, int64_t otherwise) {
    if (!given(value)) return otherwise;
    int64_t at = bound_of(value, work);
    if (at < 0) at = at < -length ? low : at + length;
    return std::clamp(at, low, high);
  };
  const int64_t start = clamp(slice.start, step < 0 ? high : low);
  const int64_t stop = clamp(slice.stop, step < 0 ? low : high);
  int64_t count = 0;
  if (step > 0 && start < stop) count = (stop - start - 1) / step + 1;
  if (step < 0 && stop < start) count = step == INT64_MIN ? 1 : (start - stop - 1) / -step + 1;
  return {start, step, count};
}

/// The byte offsets of a text's code points, and its end.
std::vector<size_t> point_starts(const Text& text, Work& work) {
  work.take((text.size() + 1) * sizeof(size_t));
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at = skip_points(text.bytes(), at, 1)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

Value slice_text(const Text& text, const Bounds& bounds, Work& work) {
  if (bounds.count == 0) return Value::of(Text());
  if (bounds.step == 1) {
    const size_t begin = text.byte_at(bounds.start, work);
    const size_t end = text.byte_at(bounds.start + bounds.count, work);
    return Value::of(text.slice(begin, end, work));
  }
  const std::vector<size_t> starts = point_starts(text, work);
  TextBuilder out(work);
  for (int64_t i = 0; i < bounds.count; ++i) {
    work.step();
    const auto at = static_cast<size_t>(bounds.at(i));
    out.append(text, starts[at], starts[at + 1]);
  }
  return Value::of(out.finish());
}

Value slice_range(const RangeObject& range, const Bounds& bounds, Work& work) {
  auto out = std::make_shared<RangeObject>();
  out->start = range.start + bounds.start * range.step;
  out->length = bounds.count;
  if (__builtin_mul_overflow(range.step, bounds.step, &out->step) ||
      __builtin_mul_overflow(out->length, out->step, &out->stop) ||
      __builtin_add_overflow(out->start, out->stop, &out->stop))
    work.refuse("the chat template slices by a step that is too large");
  return Value(Kind::kRange, std::move(out));
}

}  // namespace

Value item_at(const Value& value, const Value& index, Work& work) {
  if (value.is(Kind::kDict)) {
    if (!is_hashable(index, work)) return Value::missing();
    const Value* found = value.dict().find(index, work);
    return found == nullptr ? Value::missing() : *found;
  }
  if (!index.is_integral()) return Value::missing();
  if (!value.is_text() && !value.is_sequence() && !value.is(Kind::kRange)) return Value::missing();
  if (value.is_marked()) work.unsupported("element of a text marked by", "safe");
  const int64_t length = length_of(value);
  int64_t at = index.integer();
  if (at < 0) at += length;
  if (at < 0 || at >= length) return Value::missing();
  if (value.is_text()) {
    const Text text = value.text();
    const size_t begin = text.byte_at(at, work);
    return Value::of(text.slice(begin, skip_points(text.bytes(), begin, 1), work));
  }
  if (value.is(Kind::kRange)) {
    const auto& range = value.object<RangeObject>();
    return Value::of(range.start + at * range.step);
  }
  return value.items()[static_cast<size_t>(at)];
}

Value slice_of(const Value& value, const Slice& slice, Work& work) {
  if (!value.is_text() && !value.is_sequence() && !value.is(Kind::kRange)) {
    work.refuse("the chat template slices what has no slices", std::string("a ") + type_name(value),
                "a text or a list");
  }
  if (value.is_marked()) work.unsupported("slice of a text marked by", "safe");
  const Bounds bounds = bounds_of(slice, length_of(value), work);
  if (value.is_text()) return slice_text(value.text(), bounds, work);
  if (value.is(Kind::kRange)) return slice_range(value.object<RangeObject>(), bounds, work);
  work.take(static_cast<size_t>(bounds.count) * sizeof(Value));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bounds.count));
  for (int64_t i = 0; i < bounds.count; ++i)
    items.push_back(value.items()[static_cast<size_t>(bounds.at(i))]);
  return value.is(Kind::kList) ? Value::list(std::move(items), work)
                               : Value::tuple(std::move(items), work);
}

Text reversed(const Text& text, Work& work) {
  TextBuilder out(work);
  for (size_t end = text.size(); end > 0;) {
    work.step();
    const size_t begin = point_before(text.bytes(), end);
    out.append(text, begin, end);
    end = begin;
  }
  return out.finish();
}

}  // namespace lft::text::jinja
