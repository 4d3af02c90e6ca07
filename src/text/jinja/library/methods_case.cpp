// Methods of str that change or test the case and the class of characters.
#include <algorithm>

#include "src/text/jinja/library/methods.h"
#include "src/text/jinja/library/strings.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

using Rewrite = std::string (*)(std::string_view text);

template <Rewrite rewrite>
Value rewriting(Arguments& arguments, const char* name, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  return rewritten(rewrite(text.bytes()), text, name, work);
}

Value text_upper(Arguments& arguments, Work& work) {
  return rewriting<to_upper>(arguments, "upper", work);
}
Value text_lower(Arguments& arguments, Work& work) {
  return rewriting<to_lower>(arguments, "lower", work);
}
Value text_title(Arguments& arguments, Work& work) {
  return rewriting<to_title>(arguments, "title", work);
}
Value text_capitalize(Arguments& arguments, Work& work) {
  return rewriting<to_capitalized>(arguments, "capitalize", work);
}
Value text_swapcase(Arguments& arguments, Work& work) {
  return rewriting<swap_case>(arguments, "swapcase", work);
}
Value text_casefold(Arguments& arguments, Work& work) {
  return rewriting<fold_case>(arguments, "casefold", work);
}

using OfPoint = bool (*)(char32_t point);

bool is_alnum(char32_t point) { return point != '_' && is_word_point(point); }

/// Whether the text is not empty and all its characters are of one class.
template <OfPoint of>
Value all_are(Arguments& arguments, Work&) {
  const std::string_view bytes = arguments[0].bytes();
  for (size_t at = 0; at < bytes.size();)
    if (!of(next_point(bytes, &at))) return Value::of(false);
  return Value::of(!bytes.empty());
}

/// Whether there are letters of this case and none of another.
template <OfPoint of, OfPoint other>
Value are_of_case(Arguments& arguments, Work&) {
  const std::string_view bytes = arguments[0].bytes();
  bool found = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t point = next_point(bytes, &at);
    if (other(point) || is_title(point)) return Value::of(false);
    found |= of(point);
  }
  return Value::of(found);
}

Value text_istitle(Arguments& arguments, Work&) {
  const std::string_view bytes = arguments[0].bytes();
  bool in_word = false, found = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t point = next_point(bytes, &at);
    const bool begins = is_upper(point) || is_title(point);
    if (begins ? in_word : is_lower(point) && !in_word) return Value::of(false);
    in_word = begins || is_lower(point);
    found |= in_word;
  }
  return Value::of(found);
}

Value text_isprintable(Arguments& arguments, Work& work) {
  return arguments[0].bytes().empty() ? Value::of(true) : all_are<is_printable>(arguments, work);
}

Value text_isascii(Arguments& arguments, Work&) {
  const std::string_view bytes = arguments[0].bytes();
  return Value::of(std::all_of(bytes.begin(), bytes.end(),
                               [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

}  // namespace

std::vector<Builtin> case_methods() {
  return {{"upper", "-self", text_upper},
          {"lower", "-self", text_lower},
          {"title", "-self", text_title},
          {"capitalize", "-self", text_capitalize},
          {"swapcase", "-self", text_swapcase},
          {"casefold", "-self", text_casefold},
          {"isalnum", "-self", all_are<is_alnum>},
          {"isalpha", "-self", all_are<is_alpha>},
          {"isdecimal", "-self", all_are<is_decimal>},
          {"isdigit", "-self", all_are<is_digit>},
          {"isspace", "-self", all_are<is_space>},
          {"islower", "-self", are_of_case<is_lower, is_upper>},
          {"isupper", "-self", are_of_case<is_upper, is_lower>},
          {"istitle", "-self", text_istitle},
          {"isprintable", "-self", text_isprintable},
          {"isascii", "-self", text_isascii},
          {"isnumeric", "-self", nullptr},
          {"isidentifier", "-self", nullptr},
          {"encode", "*", nullptr},
          {"expandtabs", "*", nullptr},
          {"format_map", "*", nullptr},
          {"maketrans", "*", nullptr},
          {"translate", "*", nullptr}};
}

}  // namespace lft::text::jinja
