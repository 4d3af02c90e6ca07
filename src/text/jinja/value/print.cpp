#include "src/text/jinja/value/print.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

/// The escape of a code point in repr(), or "" if it needs none.
std::string repr_escape(char32_t point, char quote) {
  if (point == static_cast<unsigned char>(quote) || point == '\\')
    return {'\\', static_cast<char>(point)};
  if (point == '\n') return "\\n";
  if (point == '\r') return "\\r";
  if (point == '\t') return "\\t";
  if (is_printable(point)) return "";
  char escape[16];
  const char* format = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
  snprintf(escape, sizeof escape, format, static_cast<unsigned>(point));
  return escape;
}

/// In single quotes, or in double quotes if it contains single ones only.
void repr_text(const Text& text, TextBuilder* out, int32_t owner) {
  const std::string_view bytes = text.bytes();
  const bool single = bytes.find('\'') != std::string_view::npos;
  const char quote = single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  const auto write = [&](size_t begin, size_t end) {
    if (owner >= 0 && !text.has_origin()) {
      out->append_owned(bytes.substr(begin, end - begin), owner);
    } else {
      out->append(text, begin, end);
    }
  };
  out->append_owned(std::string(1, quote), owner);
  size_t plain = 0;  // start of the text not yet written
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const auto byte = static_cast<unsigned char>(bytes[at]);
    if (byte >= 0x20 && byte < 0x7F && byte != '\\' && bytes[at] != quote) {
      ++at;
      continue;
    }
    const std::string escape = repr_escape(next_point(bytes, &at), quote);
    if (escape.empty()) continue;
    write(plain, begin);
    plain = at;
    if (owner >= 0 && !text.has_origin()) {
      out->append_owned(escape, owner);
    } else {
      out->append_for(escape, text, begin, at);
    }
  }
  write(plain, bytes.size());
  out->append_owned(std::string(1, quote), owner);
}

void repr_items(const Value& value, TextBuilder* out, int32_t owner) {
  const bool is_tuple = value.is(Kind::kTuple);
  const auto& items = value.items();
  out->append_owned(is_tuple ? "(" : "[", owner);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append_owned(", ", owner);
    print_repr(items[i], out, owner);
  }
  out->append_owned(!is_tuple ? "]" : items.size() == 1 ? ",)" : ")", owner);
}

void repr_entries(const DictObject& dict, TextBuilder* out, int32_t owner) {
  out->append_owned("{", owner);
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out->append_owned(", ", owner);
    first = false;
    print_repr(key, out, owner);
    out->append_owned(": ", owner);
    print_repr(value, out, owner);
  }
  out->append_owned("}", owner);
}

/// A namespace that contains itself is refused, as in Python.
void repr_namespace(const Value& value, TextBuilder* out, int32_t owner) {
  auto& space = value.changing<NamespaceObject>();
  if (space.is_printed) out->work().refuse("the chat template prints a namespace within itself");
  space.is_printed = true;
  out->append_owned("<Namespace ", owner);
  repr_entries(space.attributes, out, owner);
  out->append_owned(">", owner);
  space.is_printed = false;
}

void repr_view(const ViewObject& view, TextBuilder* out, int32_t owner) {
  using Part = ViewObject::Part;
  out->append(view.part == Part::kKeys     ? "dict_keys(["
              : view.part == Part::kValues ? "dict_values(["
                                           : "dict_items([");
  bool first = true;
  for (const auto& [key, value] : view.dict.dict().entries) {
    if (!first) out->append(", ");
    first = false;
    if (view.part == Part::kItems) out->append("(");
    if (view.part != Part::kValues) print_repr(key, out, owner);
    if (view.part == Part::kItems) out->append(", ");
    if (view.part != Part::kKeys) print_repr(value, out, owner);
    if (view.part == Part::kItems) out->append(")");
  }
  out->append("])");
}

std::string range_repr(const RangeObject& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  return range.step == 1 ? text + ")" : text + ", " + std::to_string(range.step) + ")";
}

/// A value that contains no other values.
std::string scalar_repr(const Value& value, Work& work) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kMissing:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.boolean() ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.integer());
    case Kind::kFloat:
      return float_repr(value.real());
    case Kind::kRange:
      return range_repr(value.object<RangeObject>());
    default:
      work.refuse("the chat template prints a value that has no text",
                  std::string("a ") + type_name(value), {},
                  "call it, or pipe it through `list`, in the chat template");
  }
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char shortest[32];
  const auto end =
      std::to_chars(shortest, shortest + sizeof shortest, value, std::chars_format::scientific);
  std::string text(shortest, end.ptr);
  const bool negative = text[0] == '-';
  const size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  std::string digits;
  for (const char c : text.substr(0, mark))
    if (c >= '0' && c <= '9') digits += c;
  std::string out;
  if (exponent < -4 || exponent >= 16) {
    out = digits.substr(0, 1) + (digits.size() > 1 ? "." + digits.substr(1) : "");
    char tail[16];
    snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    out += tail;
  } else if (exponent < 0) {
    out = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out = digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
  }
  return negative ? "-" + out : out;
}

void print_repr(const Value& value, TextBuilder* out, int32_t owner) {
  out->work().step();
  if (owner < 0) owner = value.source();
  switch (value.kind()) {
    case Kind::kText:
      if (value.is_marked()) out->work().unsupported("repr of a text marked by", "safe");
      return repr_text(value.text(), out, owner);
    case Kind::kList:
    case Kind::kTuple:
      return repr_items(value, out, owner);
    case Kind::kDict:
      return repr_entries(value.dict(), out, owner);
    case Kind::kNamespace:
      return repr_namespace(value, out, owner);
    case Kind::kView:
      return repr_view(value.object<ViewObject>(), out, owner);
    default:
      return out->append_owned(scalar_repr(value, out->work()), owner);
  }
}

void print(const Value& value, TextBuilder* out) {
  if (value.is_text()) {
    out->append(value.text());
  } else if (!value.is_undefined()) {
    print_repr(value, out);
  }
}

Text text_of(const Value& value, Work& work) {
  if (value.is_text()) return value.text();
  TextBuilder out(work);
  print(value, &out);
  return out.finish();
}

}  // namespace lft::text::jinja
