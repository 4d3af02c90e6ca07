// Filters for numbers, and conversions of texts to numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/library/strings.h"
#include "src/text/jinja/value/arithmetic.h"
#include "src/text/jinja/value/number_format.h"

namespace lft::text::jinja {
namespace {

/// A number's text without surrounding white space and single underscores between digits; empty if
/// an underscore is anywhere else.
std::optional<std::string> number_text(const Text& text, Work& work) {
  const Text stripped = strip(text, nullptr, true, true, work);
  const std::string_view bytes = stripped.bytes();
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '_') {
      out += bytes[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 >= bytes.size() || !is_digit(bytes[i - 1]) || !is_digit(bytes[i + 1]))
      return std::nullopt;
  }
  return out;
}

/// Implements Python's int(text, base).
std::optional<int64_t> parse_integer(const Text& text, int64_t base, Work& work) {
  std::optional<std::string> digits = number_text(text, work);
  if (!digits || digits->empty() || base < 0 || base == 1 || base > 36) return std::nullopt;
  const bool negative = (*digits)[0] == '-';
  if (negative || (*digits)[0] == '+') digits->erase(0, 1);
  if (digits->size() > 2 && (*digits)[0] == '0') {
    const char mark = static_cast<char>((*digits)[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      digits->erase(0, 2);
    }
  }
  if (base == 0) {
    base = 10;
    if (digits->size() > 1 && (*digits)[0] == '0' &&
        digits->find_first_not_of('0') != std::string::npos)
      return std::nullopt;
  }
  if (digits->empty()) return std::nullopt;
  int64_t value = 0;
  bool too_large = false;
  for (const char c : *digits) {
    const char low = static_cast<char>(c | 0x20);
    const int64_t digit = c >= '0' && c <= '9'       ? c - '0'
                          : low >= 'a' && low <= 'z' ? low - 'a' + 10
                                                     : 99;
    if (digit >= base) return std::nullopt;
    too_large |=
        __builtin_mul_overflow(value, base, &value) || __builtin_sub_overflow(value, digit, &value);
  }
  if (too_large || (!negative && value == INT64_MIN))
    work.refuse("the chat template reads an integer of more than 64 bits");
  return negative ? value : -value;
}

/// Implements Python's float(text).
std::optional<double> parse_float(const Text& text, Work& work) {
  const std::optional<std::string> digits = number_text(text, work);
  if (!digits || digits->empty()) return std::nullopt;
  std::string low = *digits;
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string name = low.substr(low.find_first_not_of("+-") == 1 ? 1 : 0);
  const bool is_name = name == "inf" || name == "infinity" || name == "nan";
  if (!is_name && low.find_first_not_of("0123456789+-.e") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(low.c_str(), &end);
  return end == low.c_str() + low.size() ? std::optional<double>(value) : std::nullopt;
}

Value do_int(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  Value otherwise = arguments.has(1) ? arguments[1] : Value::of(int64_t{0});
  if (value.is_undefined())
    work.refuse("the chat template calculates with a value that is undefined", value.name());
  if (value.is_integral()) return Value::of(value.integer());
  if (value.is(Kind::kFloat))
    return std::isnan(value.real()) ? otherwise : integer_of(value.real(), work);
  if (!value.is_text()) return otherwise;
  if (const auto whole =
          parse_integer(value.text(), integer_argument(arguments, 2, 10, work), work))
    return Value::of(*whole);
  const auto real = parse_float(value.text(), work);
  return real && std::isfinite(*real) ? integer_of(*real, work) : otherwise;
}

Value do_float(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  Value otherwise = arguments.has(1) ? arguments[1] : Value::of(0.0);
  if (value.is_undefined())
    work.refuse("the chat template calculates with a value that is undefined", value.name());
  if (value.is_number()) return Value::of(value.real());
  if (!value.is_text()) return otherwise;
  const auto real = parse_float(value.text(), work);
  return real ? Value::of(*real) : otherwise;
}

Value do_abs(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  if (value.is(Kind::kFloat)) return Value::of(std::fabs(value.real()));
  if (!value.is_integral()) work.refuse("the filter abs gets what is no number", type_name(value));
  return value.integer() < 0 ? negate(value, work) : Value::of(value.integer());
}

/// Rounds to the nearest multiple of 10^-digits, ties to even.
double rounded(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits >= 0) {
    char text[768];
    snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), value);
    return std::strtod(text, nullptr);
  }
  if (digits < -308) return std::copysign(0.0, value);
  const double power = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / power) * power;
}

Value round_integer(int64_t value, int64_t digits, Work& work) {
  if (digits >= 0) return Value::of(value);
  if (digits < -18) return Value::of(int64_t{0});
  int64_t power = 1;
  for (; digits < 0; ++digits) power *= 10;
  const int64_t rest = ((value % power) + power) % power, low = value / power * power;
  const int64_t floor = value < 0 && value % power != 0 ? low - power : low;
  const bool odd = (floor / power) % 2 != 0;
  const bool up = rest > power - rest || (rest == power - rest && odd);
  return calculate(Operator::kAdd, Value::of(floor), Value::of(up ? power : int64_t{0}), work);
}

Value do_round(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  const int64_t digits = integer_argument(arguments, 1, 0, work);
  const std::string method(arguments.has(2) ? text_argument(arguments, 2, work).bytes() : "common");
  if (method != "common" && method != "ceil" && method != "floor")
    work.refuse("the filter round gets a method that there is not", method,
                "common, ceil or floor");
  if (!value.is_number()) work.refuse("the filter round gets what is no number", type_name(value));
  if (method == "common") {
    return value.is_integral() ? round_integer(value.integer(), digits, work)
                               : Value::of(rounded(value.real(), digits));
  }
  const Value power = calculate(Operator::kPow, Value::of(int64_t{10}), Value::of(digits), work);
  const double scaled = calculate(Operator::kMul, value, power, work).real();
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return calculate(Operator::kDiv, integer_of(whole, work), power, work);
}

Value do_filesizeformat(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  const auto size = value.is_number() ? value.real()
                    : value.is_text() ? parse_float(value.text(), work)
                                      : std::nullopt;
  if (!size || !std::isfinite(*size))
    work.refuse("the filter filesizeformat gets what is no number", type_name(value));
  const bool binary = flag_argument(arguments, 1, false);
  const double base = binary ? 1024 : 1000;
  if (*size == 1) return make_text("1 Byte", work);
  if (*size < base) return make_text(std::to_string(static_cast<int64_t>(*size)) + " Bytes", work);
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t prefix = 0;
  for (; prefix + 1 < kPrefixes.size() && *size >= unit * base; ++prefix) unit *= base;
  char text[400];
  snprintf(text, sizeof text, "%.1f ", *size / unit);
  const char letter = binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  return make_text(std::string(text) + letter + (binary ? "iB" : "B"), work);
}

}  // namespace

std::vector<Builtin> number_filters() {
  return {{"int", "value default? base?", do_int},
          {"float", "value default?", do_float},
          {"abs", "-x", do_abs},
          {"round", "value precision? method?", do_round},
          {"filesizeformat", "value binary?", do_filesizeformat}};
}

}  // namespace lft::text::jinja
