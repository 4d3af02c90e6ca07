// Methods of str that split or join texts.
#include <algorithm>

#include "src/text/jinja/library/methods.h"
#include "src/text/jinja/library/strings.h"
#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/iterate.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

constexpr size_t kNotThere = std::string_view::npos;

/// Splits at white space, at most `count` times, from the left.
std::vector<Value> split_words(const Text& text, int64_t count, Work& work) {
  const std::string_view bytes = text.bytes();
  std::vector<Value> words;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size()) {
      size_t next = at;
      if (is_space(next_point(bytes, &next)) != spaces) break;
      at = next;
    }
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    const size_t begin = at;
    if (count-- == 0) {
      words.push_back(Value::of(text.slice(begin, bytes.size(), work)));
      break;
    }
    skip(false);
    work.take(sizeof(Value));
    words.push_back(Value::of(text.slice(begin, at, work)));
  }
  return words;
}

/// Splits at white space from the right.
std::vector<Value> split_words_back(const Text& text, int64_t count, Work& work) {
  const std::string_view bytes = text.bytes();
  std::vector<Value> words;
  size_t end = bytes.size();
  const auto skip = [&](bool spaces) {
    while (end > 0) {
      const size_t before = point_before(bytes, end);
      size_t at = before;
      if (is_space(next_point(bytes, &at)) != spaces) break;
      end = before;
    }
  };
  for (skip(true); end > 0; skip(true)) {
    const size_t last = end;
    if (count-- == 0) {
      words.push_back(Value::of(text.slice(0, last, work)));
      break;
    }
    skip(false);
    work.take(sizeof(Value));
    words.push_back(Value::of(text.slice(end, last, work)));
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<Value> split_at(const Text& text, const Text& separator, int64_t count, Work& work) {
  std::vector<Value> parts;
  size_t begin = 0;
  while (count-- != 0) {
    const size_t found = find_bytes(text.bytes(), separator.bytes(), begin, work);
    if (found == kNotThere) break;
    work.take(sizeof(Value));
    parts.push_back(Value::of(text.slice(begin, found, work)));
    begin = found + separator.size();
  }
  parts.push_back(Value::of(text.slice(begin, text.size(), work)));
  return parts;
}

/// Charges for a search of `needle` from the right, which may compare each byte often.
void charge_backward(const Text& text, const Text& needle, Work& work) {
  work.step(1 + static_cast<int64_t>(text.size() / 64 * std::min<size_t>(needle.size(), 4096)));
}

std::vector<Value> split_at_back(const Text& text, const Text& separator, int64_t count,
                                 Work& work) {
  charge_backward(text, separator, work);
  std::vector<Value> parts;
  size_t end = text.size();
  while (count-- != 0 && end >= separator.size()) {
    const size_t found = text.bytes().rfind(separator.bytes(), end - separator.size());
    if (found == kNotThere) break;
    work.take(sizeof(Value));
    parts.push_back(Value::of(text.slice(found + separator.size(), end, work)));
    end = found;
  }
  parts.push_back(Value::of(text.slice(0, end, work)));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Text separator_argument(const Arguments& arguments, Work& work) {
  Text separator = text_argument(arguments, 1, work);
  if (separator.empty()) work.refuse("the chat template splits a text at an empty one");
  return separator;
}

/// `at` splits at a separator, `words` is used if none is given.
template <auto at, auto words>
Value splitting(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  const int64_t count = integer_argument(arguments, 2, -1, work);
  return Value::list(arguments.is_set(1)
                         ? at(text, separator_argument(arguments, work), count, work)
                         : words(text, count, work),
                     work);
}

Value text_splitlines(Arguments& arguments, Work& work) {
  std::vector<Value> lines;
  for (const Text& line :
       split_lines(text_argument(arguments, 0, work), flag_argument(arguments, 1, false), work))
    lines.push_back(Value::of(line));
  return Value::list(std::move(lines), work);
}

Value around(const Text& text, size_t found, size_t length, Work& work) {
  return Value::tuple(
      {Value::of(text.slice(0, found, work)), Value::of(text.slice(found, found + length, work)),
       Value::of(text.slice(found + length, text.size(), work))},
      work);
}

Value text_partition(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  const Text separator = separator_argument(arguments, work);
  const size_t found = find_bytes(text.bytes(), separator.bytes(), 0, work);
  if (found == kNotThere) return around(text, text.size(), 0, work);
  return around(text, found, separator.size(), work);
}

Value text_rpartition(Arguments& arguments, Work& work) {
  const Text text = text_argument(arguments, 0, work);
  const Text separator = separator_argument(arguments, work);
  charge_backward(text, separator, work);
  const size_t found = text.bytes().rfind(separator.bytes());
  if (found == kNotThere) return around(text, 0, 0, work);
  return around(text, found, separator.size(), work);
}

Value text_join(Arguments& arguments, Work& work) {
  const Text separator = text_argument(arguments, 0, work);
  TextBuilder out(work);
  Iteration iteration(arguments[1], work);
  bool first = true;
  for (Value item; iteration.next(&item);) {
    if (!first) out.append(separator);
    first = false;
    if (!item.is_text() || item.is_marked()) {
      work.refuse("the chat template joins what is no text", std::string("a ") + type_name(item),
                  "texts", "use the filter join in the chat template");
    }
    out.append(item.text());
  }
  return Value::of(out.finish());
}

}  // namespace

std::vector<Builtin> split_methods() {
  return {{"split", "-self sep? maxsplit?", splitting<split_at, split_words>},
          {"rsplit", "-self sep? maxsplit?", splitting<split_at_back, split_words_back>},
          {"splitlines", "-self keepends?", text_splitlines},
          {"partition", "-self -sep", text_partition},
          {"rpartition", "-self -sep", text_rpartition},
          {"join", "-self -iterable", text_join}};
}

}  // namespace lft::text::jinja
