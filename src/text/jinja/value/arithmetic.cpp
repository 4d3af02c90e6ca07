#include "src/text/jinja/value/arithmetic.h"

#include <cmath>

#include "src/text/jinja/value/percent.h"

namespace lft::text::jinja {
namespace {

const char* sign_of(Operator sign) {
  constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<size_t>(sign)];
}

[[noreturn]] void no_operator(Operator sign, const Value& a, const Value& b, Work& work) {
  if (a.is_undefined() || b.is_undefined()) {
    const Value& value = a.is_undefined() ? a : b;
    work.refuse("the chat template calculates with a value that is undefined", value.name());
  }
  work.refuse("the chat template uses an operator between values that do not have it",
              std::string(type_name(a)) + " " + sign_of(sign) + " " + type_name(b));
}

[[noreturn]] void too_big(Work& work) {
  work.refuse("the chat template calculates an integer of more than 64 bits");
}

[[noreturn]] void by_zero(Work& work) { work.refuse("the chat template divides by zero"); }

int64_t floor_divide(int64_t a, int64_t b, Work& work) {
  if (b == 0) by_zero(work);
  if (a == INT64_MIN && b == -1) too_big(work);
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t modulo(int64_t a, int64_t b, Work& work) {
  if (b == 0) by_zero(work);
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_divide(double a, double b) {
  const double rest = float_modulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value power(int64_t base, int64_t exponent, Work& work) {
  if (exponent < 0) {
    if (base == 0) by_zero(work);
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_big(work);
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_big(work);
  }
  return Value::of(result);
}

double float_power(double base, double exponent, Work& work) {
  if (base == 0 && exponent < 0) by_zero(work);
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      exponent != std::floor(exponent))
    work.unsupported("number", "a complex one");
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    work.refuse("the chat template calculates a number that is too large");
  return result;
}

Value calculate_integers(Operator sign, int64_t a, int64_t b, Work& work) {
  int64_t result = 0;
  switch (sign) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) too_big(work);
      return Value::of(result);
    case Operator::kSub:
      if (__builtin_sub_overflow(a, b, &result)) too_big(work);
      return Value::of(result);
    case Operator::kMul:
      if (__builtin_mul_overflow(a, b, &result)) too_big(work);
      return Value::of(result);
    case Operator::kDiv:
      if (b == 0) by_zero(work);
      return Value::of(static_cast<double>(static_cast<long double>(a) / b));
    case Operator::kFloorDiv:
      return Value::of(floor_divide(a, b, work));
    case Operator::kMod:
      return Value::of(modulo(a, b, work));
    default:
      return power(a, b, work);
  }
}

Value calculate_floats(Operator sign, double a, double b, Work& work) {
  if (b == 0 && (sign == Operator::kDiv || sign == Operator::kFloorDiv || sign == Operator::kMod))
    by_zero(work);
  switch (sign) {
    case Operator::kAdd:
      return Value::of(a + b);
    case Operator::kSub:
      return Value::of(a - b);
    case Operator::kMul:
      return Value::of(a * b);
    case Operator::kDiv:
      return Value::of(a / b);
    case Operator::kFloorDiv:
      return Value::of(float_floor_divide(a, b));
    case Operator::kMod:
      return Value::of(float_modulo(a, b));
    default:
      return Value::of(float_power(a, b, work));
  }
}

Value repeat(const Value& value, int64_t count, Work& work) {
  const auto copies = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (value.is_text()) {
    const Text text = value.text();
    work.take_many(copies, text.size() + text.runs().size() * sizeof(Run));
    TextBuilder out(work);
    if (!text.empty())
      for (uint64_t i = 0; i < copies; ++i) out.append(text);
    return Value::of(out.finish());
  }
  const auto& items = value.items();
  work.take_many(copies, items.size() * sizeof(Value));
  std::vector<Value> out;
  out.reserve(items.size() * copies);
  if (!items.empty())
    for (uint64_t i = 0; i < copies; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value(value).is(Kind::kList) ? Value::list(std::move(out), work)
                                      : Value::tuple(std::move(out), work);
}

Value add_sequences(const Value& a, const Value& b, Work& work) {
  work.take((a.items().size() + b.items().size()) * sizeof(Value));
  std::vector<Value> items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? Value::list(std::move(items), work)
                           : Value::tuple(std::move(items), work);
}

Value add_texts(const Value& a, const Value& b, Work& work) {
  TextBuilder out(work);
  out.append(a.text());
  out.append(b.text());
  return Value::of(out.finish());
}

}  // namespace

Value calculate(Operator sign, const Value& a, const Value& b, Work& work) {
  if (a.is_marked() || b.is_marked()) work.unsupported("operator on a text marked by", "safe");
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral())
      return calculate_integers(sign, a.integer(), b.integer(), work);
    return calculate_floats(sign, a.real(), b.real(), work);
  }
  if (sign == Operator::kAdd && a.is_text() && b.is_text()) return add_texts(a, b, work);
  if (sign == Operator::kAdd && a.is_sequence() && a.kind() == b.kind())
    return add_sequences(a, b, work);
  if (sign == Operator::kMod && a.is_text()) return format_percent(a.text(), b, work);
  if (sign == Operator::kMul) {
    if ((a.is_text() || a.is_sequence()) && b.is_integral()) return repeat(a, b.integer(), work);
    if ((b.is_text() || b.is_sequence()) && a.is_integral()) return repeat(b, a.integer(), work);
  }
  no_operator(sign, a, b, work);
}

Value negate(const Value& value, Work& work) {
  if (value.is(Kind::kFloat)) return Value::of(-value.real());
  if (!value.is_integral())
    work.refuse("the chat template negates what is no number", type_name(value), "a number");
  if (value.integer() == INT64_MIN) too_big(work);
  return Value::of(-value.integer());
}

Value posit(const Value& value, Work& work) {
  if (value.is(Kind::kFloat)) return Value::of(value.real());
  if (!value.is_integral())
    work.refuse("the chat template puts a sign before what is no number", type_name(value),
                "a number");
  return Value::of(value.integer());
}

Value integer_of(double value, Work& work) {
  if (!(value > -9223372036854775808.0 && value < 9223372036854775808.0)) too_big(work);
  return Value::of(static_cast<int64_t>(value));
}

}  // namespace lft::text::jinja
