#include "src/text/jinja/library/braces.h"

#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/library/access.h"
#include "src/text/jinja/value/number_format.h"
#include "src/text/jinja/value/print.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class Braces {
 public:
  Braces(const Arguments& arguments, Work& work) : arguments_(arguments), work_(work) {}

  /// Formats the text. Format specs may contain fields, whose specs may not.
  Text run(const Text& format, int level) {
    if (level > 2) fail("fields are nested too deeply");
    const std::string_view bytes = format.bytes();
    TextBuilder out(work_);
    for (size_t at = 0; at < bytes.size();) {
      const size_t mark = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(format, at, mark);
      at = mark;
      if (at >= bytes.size()) break;
      if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
        out.append(format, at, at + 1);
        at += 2;
      } else if (bytes[at] == '}') {
        fail("a } has no {");
      } else {
        const size_t end = field_end(bytes, at);
        append_field(format.slice(at + 1, end, work_), &out, level);
        at = end + 1;
      }
    }
    return out.finish();
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    work_.refuse("the chat template calls format() wrongly: " + what);
  }

  /// The closing brace of the field that opens at `at`. Braces inside brackets are ignored.
  size_t field_end(std::string_view bytes, size_t at) {
    int open = 0;
    bool in_brackets = false;
    for (size_t i = at; i < bytes.size(); ++i) {
      if (bytes[i] == '[' && open == 1) in_brackets = true;
      if (bytes[i] == ']') in_brackets = false;
      if (in_brackets) continue;
      open += bytes[i] == '{' ? 1 : bytes[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    fail("a { has no }");
  }

  void append_field(const Text& field, TextBuilder* out, int level) {
    const std::string_view bytes = field.bytes();
    size_t name_end = 0;
    for (bool in_brackets = false; name_end < bytes.size(); ++name_end) {
      const char c = bytes[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == ':' || c == '!')) break;
      if (c == '{') fail("a field's name has a brace");
    }
    Value value = value_of(bytes.substr(0, name_end));
    size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      if (at + 2 > bytes.size() || (at + 2 < bytes.size() && bytes[at + 2] != ':'))
        fail("a conversion is one letter");
      value = converted(value, at + 1 < bytes.size() ? bytes[at + 1] : '\0');
      at += 2;
    }
    Text spec;
    if (at < bytes.size() && bytes[at] == ':')
      spec = run(field.slice(at + 1, bytes.size(), work_), level + 1);
    append_value(value, spec, out);
  }

  Value converted(const Value& value, char conversion) {
    if (conversion == 's') return Value::of(text_of(value, work_));
    if (conversion != 'r') work_.unsupported("conversion in format()", std::string(1, conversion));
    TextBuilder repr(work_);
    print_repr(value, &repr);
    return Value::of(repr.finish());
  }

  /// The argument at a position or with a name, with its attributes and items.
  Value value_of(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    size_t at = end;
    while (at < name.size()) {
      work_.step();
      if (name[at] == '.') {
        const size_t next = std::min(name.find_first_of(".[", at + 1), name.size());
        if (next == at + 1) fail("an attribute has no name");
        value = get_attribute(value, name.substr(at + 1, next - at - 1), work_);
        at = next;
      } else if (name[at] == '[') {
        const size_t close = name.find(']', at);
        if (close == std::string_view::npos || close == at + 1) fail("brackets contain no key");
        const std::string key(name.substr(at + 1, close - at - 1));
        value = get_item(
            value, all_digits(key) ? Value::of(int64_t{std::stoll(key)}) : make_text(key, work_),
            work_);
        at = close + 1;
      } else {
        fail("after ] comes . or [");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (name.empty() || all_digits(name)) {
      if (name.empty() ? counted_ == Counted::kByHand : counted_ == Counted::kItself)
        fail("some fields have numbers and some have none");
      counted_ = name.empty() ? Counted::kItself : Counted::kByHand;
      const size_t at = name.empty() ? next_++ : static_cast<size_t>(std::stoll(std::string(name)));
      if (at + 1 >= arguments_.values.size()) fail("it has too few values");
      return arguments_.values[at + 1];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    fail("there is no " + quote_text(name, 40));
  }

  void append_value(const Value& value, const Text& text, TextBuilder* out) {
    if (value.is_marked()) work_.unsupported("format() of a text marked by", "safe");
    if (text.empty()) return print(value, out);
    FieldSpec spec = read_spec(text.bytes());
    if (value.is_text()) {
      if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.align == '=')
        fail("a text has no format " + quote_text(text.bytes(), 40));
      return append_text(value.text(), spec, out);
    }
    if (!value.is_number()) {
      fail(std::string("a ") + type_name(value) + " has no format " + quote_text(text.bytes(), 40));
    }
    if (value.is_integral() && spec.type == 'c') return append_character(value, spec, out);
    const bool as_integer = value.is_integral() && std::string_view("\0bdoxX", 6).find(spec.type) !=
                                                       std::string_view::npos;
    if (as_integer && spec.precision >= 0) fail("an integer has no precision");
    append_number(as_integer ? integer_digits(value.integer(), spec, work_)
                             : float_digits(value.real(), spec, work_),
                  spec, value.source(), out);
  }

  void append_character(const Value& value, FieldSpec spec, TextBuilder* out) {
    const int64_t point = value.integer();
    if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
      fail("there is no such character");
    std::string bytes;
    append_point(&bytes, static_cast<char32_t>(point));
    spec.type = 0;
    append_text(Text(bytes), spec, out);
  }

  static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  /// [[fill]align][sign][#][0][width][grouping][.precision][type]
  FieldSpec read_spec(std::string_view text) {
    FieldSpec spec;
    size_t at = 0;
    const auto sees = [&](std::string_view any) {
      return at < text.size() && any.find(text[at]) != std::string_view::npos;
    };
    const auto number = [&] {
      int64_t value = 0;
      for (; sees("0123456789"); ++at) {
        value = value * 10 + (text[at] - '0');
        if (value > INT32_MAX) fail("a width is too large");
      }
      return value;
    };
    const size_t fill = skip_points(text, 0, 1);
    if (fill < text.size() && is_align(text[fill])) {
      spec.fill = text.substr(0, fill);
      spec.align = text[fill];
      at = fill + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
    if (sees("+- ")) spec.sign = text[at++];
    if (sees("#")) spec.alternate = ++at > 0;
    if (sees("0") && spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    spec.width = number();
    if (sees(",_")) spec.grouping = text[at++];
    if (sees(".")) {
      ++at;
      if (!sees("0123456789")) fail("a precision is a number");
      spec.precision = number();
    }
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) fail("there is no format " + quote_text(text, 40));
    return spec;
  }

  enum class Counted { kNotYet, kItself, kByHand };
  const Arguments& arguments_;
  Work& work_;
  Counted counted_ = Counted::kNotYet;
  size_t next_ = 0;
};

}  // namespace

Value format_braces(const Arguments& arguments, Work& work) {
  return Value::of(Braces(arguments, work).run(text_argument(arguments, 0, work), 1));
}

}  // namespace lft::text::jinja
