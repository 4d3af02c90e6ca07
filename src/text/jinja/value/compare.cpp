#include "src/text/jinja/value/compare.h"

#include <cmath>
#include <cstring>

#include "src/text/jinja/value/iterate.h"

namespace lft::text::jinja {
namespace {

/// Returns -1, 0 or 1; 2 if one is not a number. An int and a float are compared exactly.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) {
    if (std::isnan(a.real()) || std::isnan(b.real())) return 2;
    return a.real() < b.real() ? -1 : a.real() > b.real() ? 1 : 0;
  }
  if (a.is(Kind::kFloat)) {
    const int turned = compare_numbers(b, a);
    return turned == 2 ? 2 : -turned;
  }
  const double real = b.real();
  if (std::isnan(real)) return 2;
  if (real >= 9223372036854775808.0) return -1;
  if (real < -9223372036854775808.0) return 1;
  const auto whole = static_cast<int64_t>(real);
  if (a.integer() != whole) return a.integer() < whole ? -1 : 1;
  const double rest = real - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Work& work) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equals(a[i], b[i], work)) return false;
  return true;
}

bool equal_dicts(const DictObject& a, const DictObject& b, Work& work) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key, work);
    if (other == nullptr || !equals(value, *other, work)) return false;
  }
  return true;
}

bool equal_ranges(const RangeObject& a, const RangeObject& b) {
  return a.length == b.length && (a.length == 0 || a.start == b.start) &&
         (a.length <= 1 || a.step == b.step);
}

bool equal_objects(const Value& a, const Value& b, Work& work) {
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      work.step(1 + static_cast<int64_t>(a.bytes().size() / 64));
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(a.items(), b.items(), work);
    case Kind::kDict:
      return equal_dicts(a.dict(), b.dict(), work);
    case Kind::kRange:
      return equal_ranges(a.object<RangeObject>(), b.object<RangeObject>());
    case Kind::kFunction:
      return a.function() == b.function();
    case Kind::kView:
    case Kind::kMethod:
      work.unsupported("comparison", type_name(a));
    default:
      return false;
  }
}

bool less_items(const std::vector<Value>& a, const std::vector<Value>& b, Work& work,
                const char* sign) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!equals(a[i], b[i], work)) return less(a[i], b[i], work, sign);
  return a.size() < b.size();
}

}  // namespace

bool equals(const Value& a, const Value& b, Work& work) {
  work.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.depth() > 0 && a.same_object(b)) return true;
  if (a.kind() > Kind::kView && a.kind() != Kind::kFunction && a.kind() != Kind::kMethod)
    return a.same_object(b);
  if (a.is(Kind::kNamespace) || a.is(Kind::kIterator)) return a.same_object(b);
  return equal_objects(a, b, work);
}

bool less(const Value& a, const Value& b, Work& work, const char* sign) {
  work.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_text() && b.is_text()) {
    work.step(1 + static_cast<int64_t>(a.bytes().size() / 64));
    return a.bytes() < b.bytes();  // UTF-8 has the order of the code points
  }
  if (a.is_sequence() && a.kind() == b.kind()) return less_items(a.items(), b.items(), work, sign);
  work.refuse("the chat template compares values that have no order",
              std::string(type_name(a)) + " " + sign + " " + type_name(b));
}

bool less_or_equal(const Value& a, const Value& b, Work& work, const char* sign) {
  return less(a, b, work, sign) || equals(a, b, work);
}

bool contains(const Value& container, const Value& item, Work& work) {
  switch (container.kind()) {
    case Kind::kText:
      if (!item.is_text()) {
        work.refuse("the chat template looks in a text for what is no text",
                    std::string(type_name(item)) + " in str", "a text");
      }
      return find_bytes(container.bytes(), item.bytes(), 0, work) != std::string_view::npos;
    case Kind::kDict:
      check_hashable(item, work);
      return container.dict().find(item, work) != nullptr;
    case Kind::kRange: {
      const auto& range = container.object<RangeObject>();
      if (!item.is_number() || (item.is(Kind::kFloat) && item.real() != std::floor(item.real())))
        return false;
      if (range.length == 0 || std::fabs(item.real()) > 9e18) return false;
      const auto at = item.is(Kind::kFloat) ? static_cast<int64_t>(item.real()) : item.integer();
      const int64_t last = range.start + (range.length - 1) * range.step;
      return at >= std::min(range.start, last) && at <= std::max(range.start, last) &&
             (at - range.start) % range.step == 0;
    }
    default: {
      Iteration iteration(container, work);
      for (Value each; iteration.next(&each);)
        if (equals(each, item, work)) return true;
      return false;
    }
  }
}

bool is_hashable(const Value& value, Work& work) {
  work.step();
  if (value.is(Kind::kTuple)) {
    for (const Value& item : value.items())
      if (!is_hashable(item, work)) return false;
    return true;
  }
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kView);
}

size_t hash_of(const Value& value, Work& work) {
  work.step();
  switch (value.kind()) {
    case Kind::kText:
      return std::hash<std::string_view>{}(value.bytes());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return std::hash<double>{}(value.real());
    case Kind::kTuple: {
      size_t hash = 17;
      for (const Value& item : value.items()) hash = hash * 1000003 ^ hash_of(item, work);
      return hash;
    }
    default:
      return static_cast<size_t>(value.kind());
  }
}

void check_hashable(const Value& value, Work& work) {
  if (!is_hashable(value, work)) {
    work.refuse("the chat template uses a key that cannot be one",
                std::string("a ") + type_name(value), "a text, a number or a tuple of them");
  }
}

size_t find_bytes(std::string_view text, std::string_view needle, size_t from, Work& work) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const char* begin = text.data() + from;
  const auto* found = static_cast<const char*>(
      memmem(begin, text.size() - from, needle.data(), needle.size()));  // linear in glibc
  const size_t end = found == nullptr ? text.size() : static_cast<size_t>(found - text.data());
  work.step(1 + static_cast<int64_t>((end - from) / 64));
  return found == nullptr ? std::string_view::npos : end;
}

}  // namespace lft::text::jinja
