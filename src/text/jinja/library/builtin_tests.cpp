// jinja2's tests, the names after `is`.
#include "src/text/jinja/library/builtin.h"
#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/value/arithmetic.h"
#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/iterate.h"
#include "src/text/jinja/value/print.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

using Test = bool (*)(const Value& value);

/// A test of the value alone.
template <Test test>
Value plain(Arguments& arguments, Work&) {
  return Value::of(test(arguments[0]));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is(Kind::kNone); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.boolean(); }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.boolean(); }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_escaped(const Value& value) { return value.is_marked(); }
bool can_iterate(const Value& value) { return is_iterable(value); }

bool is_sequence(const Value& value) {
  return value.is_text() || value.is_sequence() || value.is(Kind::kDict) ||
         value.is(Kind::kRange) || value.is_undefined();
}

bool is_callable(const Value& value) {
  switch (value.kind()) {
    case Kind::kFunction:
    case Kind::kMethod:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kJoiner:
    case Kind::kUndefined:
      return true;
    default:
      return false;
  }
}

/// Whether the text has cased letters, all of them with this case.
bool has_one_case(const Text& text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text.bytes(), &at);
    if (other(point) || is_title(point)) return false;
    found |= wanted(point);
  }
  return found;
}

Value test_lower(Arguments& arguments, Work& work) {
  return Value::of(has_one_case(text_of(arguments[0], work), is_lower, is_upper));
}
Value test_upper(Arguments& arguments, Work& work) {
  return Value::of(has_one_case(text_of(arguments[0], work), is_upper, is_lower));
}

Value has_rest(const Value& value, const Value& divisor, int64_t rest, Work& work) {
  const Value found = calculate(Operator::kMod, value, divisor, work);
  return Value::of(equals(found, Value::of(rest), work));
}
Value test_odd(Arguments& arguments, Work& work) {
  return has_rest(arguments[0], Value::of(int64_t{2}), 1, work);
}
Value test_even(Arguments& arguments, Work& work) {
  return has_rest(arguments[0], Value::of(int64_t{2}), 0, work);
}
Value test_divisibleby(Arguments& arguments, Work& work) {
  return has_rest(arguments[0], arguments[1], 0, work);
}

Value test_eq(Arguments& arguments, Work& work) {
  return Value::of(equals(arguments[0], arguments[1], work));
}
Value test_ne(Arguments& arguments, Work& work) {
  return Value::of(!equals(arguments[0], arguments[1], work));
}
Value test_lt(Arguments& arguments, Work& work) {
  return Value::of(less(arguments[0], arguments[1], work, "<"));
}
Value test_gt(Arguments& arguments, Work& work) {
  return Value::of(less(arguments[1], arguments[0], work, ">"));
}
Value test_le(Arguments& arguments, Work& work) {
  return Value::of(less_or_equal(arguments[0], arguments[1], work, "<="));
}
Value test_ge(Arguments& arguments, Work& work) {
  return Value::of(less_or_equal(arguments[1], arguments[0], work, ">="));
}
Value test_in(Arguments& arguments, Work& work) {
  return Value::of(contains(arguments[1], arguments[0], work));
}

/// Object identity. Equal numbers and texts, which Python may or may not share, are identical.
Value test_sameas(Arguments& arguments, Work& work) {
  const Value &a = arguments[0], &b = arguments[1];
  if (a.kind() != b.kind()) return Value::of(false);
  const bool by_value = a.kind() <= Kind::kText || a.is(Kind::kFunction);
  return Value::of(by_value ? equals(a, b, work) : a.same_object(b));
}

Value test_filter(Arguments& arguments, Work&) {
  const Value& name = arguments[0];
  return Value::of(name.is_text() && find_filter(name.bytes()) != nullptr);
}
Value test_test(Arguments& arguments, Work&) {
  const Value& name = arguments[0];
  return Value::of(name.is_text() && find_test(name.bytes()) != nullptr);
}

}  // namespace

const Builtin* find_test(std::string_view name) {
  static const BuiltinTable table({{{"defined", "value", plain<is_defined>},
                                    {"undefined", "value", plain<is_undefined>},
                                    {"none", "value", plain<is_none>},
                                    {"boolean", "value", plain<is_boolean>},
                                    {"true", "value", plain<is_true>},
                                    {"false", "value", plain<is_false>},
                                    {"integer", "value", plain<is_integer>},
                                    {"float", "value", plain<is_float>},
                                    {"number", "value", plain<is_number>},
                                    {"string", "value", plain<is_string>},
                                    {"mapping", "value", plain<is_mapping>},
                                    {"escaped", "value", plain<is_escaped>},
                                    {"iterable", "value", plain<can_iterate>},
                                    {"sequence", "value", plain<is_sequence>},
                                    {"callable", "-obj", plain<is_callable>},
                                    {"lower", "value", test_lower},
                                    {"upper", "value", test_upper},
                                    {"odd", "value", test_odd},
                                    {"even", "value", test_even},
                                    {"divisibleby", "value num", test_divisibleby},
                                    {"sameas", "value other", test_sameas},
                                    {"filter", "value", test_filter},
                                    {"test", "value", test_test},
                                    {"in", "value seq", test_in},
                                    {"==", "-a -b", test_eq},
                                    {"eq", "-a -b", test_eq},
                                    {"equalto", "-a -b", test_eq},
                                    {"!=", "-a -b", test_ne},
                                    {"ne", "-a -b", test_ne},
                                    {">", "-a -b", test_gt},
                                    {"gt", "-a -b", test_gt},
                                    {"greaterthan", "-a -b", test_gt},
                                    {">=", "-a -b", test_ge},
                                    {"ge", "-a -b", test_ge},
                                    {"<", "-a -b", test_lt},
                                    {"lt", "-a -b", test_lt},
                                    {"lessthan", "-a -b", test_lt},
                                    {"<=", "-a -b", test_le},
                                    {"le", "-a -b", test_le}}});
  return table.find(name);
}

}  // namespace lft::text::jinja
