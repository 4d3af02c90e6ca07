// Filters that escape or mark texts. Without autoescape a marked text prints like any other; where
// jinja2 would escape a text combined with it, lft refuses (value/arithmetic.cpp, print.cpp).
#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/library/strings.h"
#include "src/text/jinja/value/iterate.h"
#include "src/text/jinja/value/print.h"

namespace lft::text::jinja {
namespace {

Text escaped(const Text& text, Work& work) {
  constexpr std::string_view kPlain = "&<>'\"";
  constexpr const char* kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string out;
  for (const char byte : text.bytes()) {
    const size_t known = kPlain.find(byte);
    known == std::string_view::npos ? out += byte : out += kEscapes[known];
  }
  return rewritten(std::move(out), text, "escape", work).text();
}

Value do_escape(Arguments& arguments, Work& work) {
  if (arguments[0].is_marked()) return arguments[0];
  return Value::of(escaped(text_of(arguments[0], work), work), true);
}

Value do_forceescape(Arguments& arguments, Work& work) {
  return Value::of(escaped(text_of(arguments[0], work), work), true);
}

Value do_safe(Arguments& arguments, Work& work) {
  return Value::of(text_of(arguments[0], work), true);
}

std::string quoted_url(std::string_view bytes, bool in_query) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' || byte == '-' ||
                       byte == '~' || (byte == '/' && !in_query);
    if (plain) {
      out += byte;
    } else if (byte == ' ' && in_query) {
      out += '+';
    } else {
      out += {'%', kDigits[code >> 4], kDigits[code & 15]};
    }
  }
  return out;
}

Value do_urlencode(Arguments& arguments, Work& work) {
  const Value& value = arguments[0];
  if (value.is_text() || !is_iterable(value)) {
    const Text text = text_of(value, work);
    return rewritten(quoted_url(text.bytes(), false), text, "urlencode", work);
  }
  std::vector<Text> from;
  std::string out;
  const auto add = [&](const Value& key, const Value& item) {
    from.push_back(text_of(key, work));
    from.push_back(text_of(item, work));
    work.take((from[from.size() - 2].size() + from.back().size()) * 3 + 64);
    out += (out.empty() ? "" : "&") + quoted_url(from[from.size() - 2].bytes(), true) + "=" +
           quoted_url(from.back().bytes(), true);
  };
  if (value.is(Kind::kDict)) {
    for (const auto& [key, item] : value.dict().entries) add(key, item);
  } else {
    Iteration iteration(value, work);
    for (Value pair; iteration.next(&pair);) {
      const std::vector<Value> both = list_of(pair, work);
      if (both.size() != 2) work.refuse("the filter urlencode gets what is no pair");
      add(both[0], both[1]);
    }
  }
  return Value::of(without_origin(std::move(out), from, "urlencode", work));
}

}  // namespace

std::vector<Builtin> html_filters() {
  return {{"escape", "s", do_escape},
          {"e", "s", do_escape},
          {"forceescape", "value", do_forceescape},
          {"safe", "value", do_safe},
          {"urlencode", "value", do_urlencode},
          {"xmlattr", "d autospace?", nullptr}};
}

}  // namespace lft::text::jinja
