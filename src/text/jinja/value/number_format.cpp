#include "src/text/jinja/value/number_format.h"

#include <cmath>
#include <cstdio>

#include "src/text/jinja/value/print.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

constexpr int64_t kMaxPrecision = 400;

std::string with_sign(bool negative, const FieldSpec& spec, const std::string& digits) {
  if (negative) return "-" + digits;
  return spec.sign == '-' ? digits : spec.sign + digits;
}

/// Groups the digits before the decimal point by `size`.
std::string grouped(const std::string& digits, char separator, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string in_base(uint64_t value, unsigned base, bool upper) {
  const char* kDigits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out.insert(out.begin(), kDigits[value % base]);
    value /= base;
  } while (value > 0);
  return out;
}

std::string printed(double value, char type, int64_t precision, bool alternate) {
  const std::string format = std::string(alternate ? "%#" : "%") + ".*" + type;
  std::string out(
      static_cast<size_t>(snprintf(nullptr, 0, format.c_str(), static_cast<int>(precision), value)),
      '\0');
  snprintf(out.data(), out.size() + 1, format.c_str(), static_cast<int>(precision), value);
  return out;
}

/// A float without a type: repr(), or with a precision like g, but with a digit after the point.
std::string plain_float(double magnitude, const FieldSpec& spec) {
  if (spec.precision < 0) return float_repr(magnitude);
  const int64_t precision = std::max<int64_t>(spec.precision, 1);
  std::string text = printed(magnitude, 'g', precision, spec.alternate);
  if (text.find_first_of(".en") != std::string::npos) return text;
  const auto digits = static_cast<int64_t>(text.size());
  return digits < precision ? text + ".0" : printed(magnitude, 'e', precision - 1, false);
}

void fill(const FieldSpec& spec, int64_t count, TextBuilder* out) {
  if (count <= 0) return;
  out->work().take_many(static_cast<uint64_t>(count), spec.fill.size());
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) bytes += spec.fill;
  out->append(bytes);
}

/// The fill before and after `length` code points.
std::pair<int64_t, int64_t> padding(const FieldSpec& spec, int64_t length, char own_align) {
  const int64_t rest = std::max<int64_t>(spec.width - length, 0);
  const char align = spec.align != 0 ? spec.align : own_align;
  if (align == '<') return {0, rest};
  if (align == '^') return {rest / 2, rest - rest / 2};
  return {rest, 0};
}

}  // namespace

int64_t checked_precision(int64_t precision, Work& work) {
  if (precision > kMaxPrecision) {
    work.refuse("the chat template formats with a precision that is too large",
                std::to_string(precision), "at most " + std::to_string(kMaxPrecision));
  }
  return precision;
}

std::string integer_digits(int64_t value, const FieldSpec& spec, Work& work) {
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits, prefix;
  switch (spec.type) {
    case 0:
    case 'd':
      digits = std::to_string(magnitude);
      break;
    case 'b':
      digits = in_base(magnitude, 2, false);
      prefix = "0b";
      break;
    case 'o':
      digits = in_base(magnitude, 8, false);
      prefix = "0o";
      break;
    case 'x':
    case 'X':
      digits = in_base(magnitude, 16, spec.type == 'X');
      prefix = spec.type == 'X' ? "0X" : "0x";
      break;
    default:
      work.unsupported("format for an integer", std::string(1, spec.type));
  }
  if (spec.grouping != 0)
    digits = grouped(digits, spec.grouping, spec.type == 0 || spec.type == 'd' ? 3 : 4);
  return with_sign(value < 0, spec, (spec.alternate ? prefix : "") + digits);
}

std::string float_digits(double value, const FieldSpec& spec, Work& work) {
  const double magnitude = std::fabs(value);
  const bool negative = std::signbit(value) && !std::isnan(value);
  const int64_t precision = checked_precision(spec.precision < 0 ? 6 : spec.precision, work);
  std::string digits;
  switch (spec.type) {
    case 0:
      digits = plain_float(magnitude, spec);
      break;
    case '%':
      digits = printed(magnitude * 100, 'f', precision, spec.alternate) + "%";
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      digits = printed(magnitude, spec.type, precision, spec.alternate);
      break;
    default:
      work.unsupported("format for a float", std::string(1, spec.type));
  }
  if (spec.grouping != 0) digits = grouped(digits, spec.grouping, 3);
  return with_sign(negative, spec, digits);
}

void append_number(const std::string& digits, const FieldSpec& spec, int32_t owner,
                   TextBuilder* out) {
  if (spec.align == '=') {
    const bool has_prefix =
        spec.alternate && std::string_view("boxX").find(spec.type) != std::string_view::npos;
    const size_t head = (digits.find_first_of("+- ") == 0 ? 1 : 0) + (has_prefix ? 2 : 0);
    out->append_owned(digits.substr(0, head), owner);
    fill(spec, spec.width - static_cast<int64_t>(digits.size()), out);
    out->append_owned(digits.substr(head), owner);
    return;
  }
  const auto [before, behind] = padding(spec, static_cast<int64_t>(digits.size()), '>');
  fill(spec, before, out);
  out->append_owned(digits, owner);
  fill(spec, behind, out);
}

void append_text(const Text& text, const FieldSpec& spec, TextBuilder* out) {
  int64_t length = text.points();
  size_t end = text.size();
  if (spec.precision >= 0 && spec.precision < length) {
    length = spec.precision;
    end = text.byte_at(length, out->work());
  }
  const auto [before, behind] = padding(spec, length, '<');
  fill(spec, before, out);
  out->append(text, 0, end);
  fill(spec, behind, out);
}

}  // namespace lft::text::jinja
