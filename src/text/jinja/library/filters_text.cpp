// Filters for texts. Other values are converted by str().
#include <algorithm>

#include "src/text/jinja/library/filters.h"
#include "src/text/jinja/library/strings.h"
#include "src/text/jinja/value/percent.h"
#include "src/text/jinja/value/print.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

Text subject(const Arguments& arguments, Work& work) { return text_of(arguments[0], work); }

/// Marked texts remain marked.
Value with_mark(const Value& result, const Arguments& arguments) {
  return Value::of(result.text(), arguments[0].is_marked());
}

/// For filters that would escape a text combined with a marked one.
void check_mark(const Arguments& arguments, const char* name, Work& work) {
  for (const Value& value : arguments.values)
    if (value.is_marked()) work.unsupported("text marked by `safe` in the filter", name);
}

Value do_upper(Arguments& arguments, Work& work) {
  const Text text = subject(arguments, work);
  return with_mark(rewritten(to_upper(text.bytes()), text, "upper", work), arguments);
}

Value do_lower(Arguments& arguments, Work& work) {
  const Text text = subject(arguments, work);
  return with_mark(rewritten(to_lower(text.bytes()), text, "lower", work), arguments);
}

Value do_capitalize(Arguments& arguments, Work& work) {
  const Text text = subject(arguments, work);
  return with_mark(rewritten(to_capitalized(text.bytes()), text, "capitalize", work), arguments);
}

/// Words begin after blanks, -, (, {, [ and <.
Value do_title(Arguments& arguments, Work& work) {
  const Text text = subject(arguments, work);
  const std::string_view bytes = text.bytes();
  const auto splits = [](char32_t point) {
    return is_space(point) || point == '-' || point == '(' || point == '{' || point == '[' ||
           point == '<';
  };
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const bool is_gap = splits(next_point(bytes, &at));
    const size_t second = at;
    for (size_t next = at; next < bytes.size(); at = next)
      if (splits(next_point(bytes, &next)) != is_gap) break;
    out += to_upper(bytes.substr(begin, second - begin));
    out += to_lower(bytes.substr(second, at - second));
  }
  return rewritten(std::move(out), text, "title", work);
}

Value do_trim(Arguments& arguments, Work& work) {
  const Text text = subject(arguments, work);
  const Text characters = arguments.is_set(1) ? text_argument(arguments, 1, work) : Text();
  const Text* const taken = arguments.is_set(1) ? &characters : nullptr;
  return Value::of(strip(text, taken, true, true, work), arguments[0].is_marked());
}

Value do_replace(Arguments& arguments, Work& work) {
  const int64_t count = arguments.is_set(3) ? integer_argument(arguments, 3, -1, work) : -1;
  return Value::of(replaced(subject(arguments, work), text_of(arguments[1], work),
                            text_of(arguments[2], work), count, work));
}

Value do_center(Arguments& arguments, Work& work) {
  check_mark(arguments, "center", work);
  return Value::of(centered(subject(arguments, work), integer_argument(arguments, 1, 80, work),
                            Text(" "), work));
}

Value do_indent(Arguments& arguments, Work& work) {
  check_mark(arguments, "indent", work);
  const Text text = text_argument(arguments, 0, work);
  Text indent("    ");
  if (arguments.has(1) && arguments[1].is_text()) {
    indent = arguments[1].text();
  } else if (arguments.has(1)) {
    const int64_t width = std::max<int64_t>(integer_argument(arguments, 1, 4, work), 0);
    work.take_many(static_cast<uint64_t>(width), 1);
    indent = Text(std::string(static_cast<size_t>(width), ' '));
  }
  const bool first = flag_argument(arguments, 2, false), blank = flag_argument(arguments, 3, false);
  TextBuilder padded(work);
  padded.append(text);
  padded.append('\n');
  const std::vector<Text> lines = split_lines(padded.finish(), false, work);
  TextBuilder out(work);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append('\n');
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(indent);
    out.append(lines[i]);
  }
  return Value::of(out.finish());
}

Value do_truncate(Arguments& arguments, Work& work) {
  check_mark(arguments, "truncate", work);
  const int64_t length = integer_argument(arguments, 1, 255, work);
  const bool cuts_words = flag_argument(arguments, 2, false);
  const Text end = arguments.has(3) ? text_argument(arguments, 3, work) : Text("...");
  const int64_t leeway = arguments.is_set(4) ? integer_argument(arguments, 4, 5, work) : 5;
  if (length < end.points() || leeway < 0)
    work.refuse("the filter truncate gets a length below that of its end, or no leeway");
  const int64_t present = length_of(arguments[0]);
  if (present >= 0 && (leeway >= INT64_MAX - length || present <= length + leeway))
    return arguments[0];
  const Text text = text_argument(arguments, 0, work);
  size_t kept = text.byte_at(length - end.points(), work);
  if (!cuts_words) {
    const size_t blank = text.bytes().substr(0, kept).rfind(' ');
    if (blank != std::string_view::npos) kept = blank;
  }
  TextBuilder out(work);
  out.append(text, 0, kept);
  out.append(end);
  return Value::of(out.finish());
}

Value do_wordcount(Arguments& arguments, Work& work) {
  const Text text = subject(arguments, work);
  const std::string_view bytes = text.bytes();
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < bytes.size();) {
    const bool is_word = is_word_point(next_point(bytes, &at));
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::of(words);
}

Value do_string(Arguments& arguments, Work& work) {
  if (arguments[0].is_text()) return arguments[0];
  return Value::of(subject(arguments, work));
}

Value do_format(Arguments& arguments, Work& work) {
  check_mark(arguments, "format", work);
  const Text format = subject(arguments, work);
  std::vector<Value> values(arguments.values.begin() + 1, arguments.values.end());
  if (arguments.named.empty())
    return format_percent(format, Value::tuple(std::move(values), work), work);
  if (!values.empty()) work.refuse("the filter format gets values by place and by name");
  auto dict = std::make_shared<DictObject>();
  for (const auto& [name, value] : arguments.named) dict->set(make_text(name, work), value, work);
  return format_percent(format, make_dict(std::move(dict)), work);
}

}  // namespace

std::vector<Builtin> text_filters() {
  return {{"upper", "s", do_upper},
          {"lower", "s", do_lower},
          {"capitalize", "s", do_capitalize},
          {"title", "s", do_title},
          {"trim", "value chars?", do_trim},
          {"replace", "s old new count?", do_replace},
          {"center", "value width?", do_center},
          {"indent", "s width? first? blank?", do_indent},
          {"truncate", "s length? killwords? end? leeway?", do_truncate},
          {"wordcount", "s", do_wordcount},
          {"string", "object", do_string},
          {"format", "value * **", do_format},
          {"wordwrap", "s *", nullptr},
          {"striptags", "value", nullptr},
          {"urlize", "value *", nullptr},
          {"pprint", "value", nullptr},
          {"random", "seq", nullptr}};
}

}  // namespace lft::text::jinja
