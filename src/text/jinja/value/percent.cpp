#include "src/text/jinja/value/percent.h"

#include <cmath>

#include "src/base/errors.h"
#include "src/text/jinja/value/arithmetic.h"
#include "src/text/jinja/value/number_format.h"
#include "src/text/jinja/value/print.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

class Percent {
 public:
  Percent(const Text& format, const Value& values, Work& work)
      : format_(format), bytes_(format.bytes()), values_(values), work_(work), out_(work) {}

  Value run() {
    while (at_ < bytes_.size()) {
      const size_t sign = std::min(bytes_.find('%', at_), bytes_.size());
      out_.append(format_, at_, sign);
      at_ = sign;
      if (at_ < bytes_.size()) convert();
    }
    const bool is_mapping = values_.is(Kind::kDict) || values_.is(Kind::kList) ||
                            values_.is(Kind::kRange) || values_.is_undefined();
    if (!is_mapping && used_ < given()) fail("not all of its values are used");
    return Value::of(out_.finish());
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    work_.refuse("the chat template formats a text by % wrongly: " + what, quote_text(bytes_, 80));
  }
  size_t given() const { return values_.is(Kind::kTuple) ? values_.items().size() : 1; }

  Value next_value() {
    if (used_ >= given()) fail("it has too few values");
    ++used_;
    return values_.is(Kind::kTuple) ? values_.items()[used_ - 1] : values_;
  }

  char peek() {
    if (at_ >= bytes_.size()) fail("it ends within a format");
    return bytes_[at_];
  }

  /// Parses digits, or a star for the next value.
  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_value();
      if (!value.is_integral()) fail("a * takes an integer");
      if (value.integer() > INT32_MAX || value.integer() < -INT32_MAX) fail("a width is too large");
      return value.integer();
    }
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + (bytes_[at_++] - '0');
      if (number > INT32_MAX) fail("a width is too large");
    }
    return number;
  }

  /// The value for %(name)s.
  Value named_value() {
    if (!values_.is(Kind::kDict)) fail("a name wants a dict");
    const size_t begin = ++at_;
    for (int open = 1; open > 0; ++at_) open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
    const std::string_view name = bytes_.substr(begin, at_ - 1 - begin);
    const Value* found = values_.dict().find(name);
    if (found == nullptr) fail("there is no " + quote_text(name, 40));
    used_ = 1;
    return *found;
  }

  void convert() {
    ++at_;
    FieldSpec spec;
    Value value;
    if (peek() == '(') value = named_value();
    bool left = false, zero = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) {
      left |= peek() == '-';
      zero |= peek() == '0';
      spec.alternate |= peek() == '#';
      if (peek() == '+' || (peek() == ' ' && spec.sign == '-')) spec.sign = peek();
    }
    spec.width = number();
    if (spec.width < 0) left = true;
    spec.width = std::abs(spec.width);
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    const char type = bytes_[at_++];
    if (type == '%') return out_.append('%');
    if (std::string_view("diuoxXeEfFgGcrs").find(type) == std::string_view::npos)
      work_.unsupported("format", "%" + std::string(1, type));
    if (value.is_missing()) value = next_value();
    spec.align = left ? '<' : '>';
    const bool is_text = std::string_view("crs").find(type) != std::string_view::npos;
    if (zero && !left && !is_text) {
      spec.align = '=';
      spec.fill = "0";
    }
    append(value, type, spec);
  }

  void append(const Value& value, char type, FieldSpec spec) {
    switch (type) {
      case 's':
        return append_text(text_of(value, work_), spec, &out_);
      case 'r': {
        TextBuilder repr(work_);
        print_repr(value, &repr);
        return append_text(repr.finish(), spec, &out_);
      }
      case 'c':
        return append_character(value, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return append_integer(value, type, spec);
      default:
        if (!value.is_number()) fail("%" + std::string(1, type) + " wants a number");
        spec.type = type;
        append_number(float_digits(value.real(), spec, work_), spec, value.source(), &out_);
    }
  }

  void append_character(const Value& value, FieldSpec spec) {
    spec.precision = -1;
    if (value.is_text() && value.text().points() == 1)
      return append_text(value.text(), spec, &out_);
    if (!value.is_integral() || value.integer() < 0 || value.integer() > 0x10FFFF ||
        (value.integer() >= 0xD800 && value.integer() < 0xE000))
      fail("%c wants one character");
    std::string bytes;
    append_point(&bytes, static_cast<char32_t>(value.integer()));
    append_text(Text(bytes), spec, &out_);
  }

  void append_integer(const Value& value, char type, FieldSpec spec) {
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_integral() && !(decimal && value.is(Kind::kFloat)))
      fail("%" + std::string(1, type) + " wants an integer");
    spec.type = decimal ? 'd' : type;
    const int64_t whole =
        value.is_integral() ? value.integer() : integer_of(value.real(), work_).integer();
    std::string digits = integer_digits(whole, spec, work_);
    const int64_t least = spec.precision < 0 ? 0 : checked_precision(spec.precision, work_);
    size_t head = digits.find_first_not_of("+- ");
    if (spec.alternate && !decimal) head += 2;
    if (static_cast<int64_t>(digits.size() - head) < least)
      digits.insert(head, static_cast<size_t>(least) - (digits.size() - head), '0');
    append_number(digits, spec, value.source(), &out_);
  }

  const Text& format_;
  std::string_view bytes_;
  const Value& values_;
  Work& work_;
  TextBuilder out_;
  size_t at_ = 0, used_ = 0;
};

}  // namespace

Value format_percent(const Text& format, const Value& values, Work& work) {
  return Percent(format, values, work).run();
}

}  // namespace lft::text::jinja
