#include "src/text/jinja/library/tojson.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "src/text/jinja/value/compare.h"
#include "src/text/jinja/value/print.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_repr(value);
}

/// The escape of a code point, or "" if it needs none.
std::string json_escape(char32_t point, bool ascii) {
  constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kMarks = "\"\\bfnrt";
  if (point < 0x80) {
    const size_t known = kPlain.find(static_cast<char>(point));
    if (known != std::string_view::npos) return {'\\', kMarks[known]};
    if (point >= 0x20) return "";
  } else if (!ascii) {
    return "";
  }
  char escape[16];
  if (point < 0x10000) {
    snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(point));
  } else {
    const auto rest = static_cast<unsigned>(point - 0x10000);
    snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + (rest >> 10),
             0xDC00 + (rest & 0x3FF));
  }
  return escape;
}

class JsonWriter {
 public:
  JsonWriter(const Arguments& arguments, Work& work) : work_(work), out_(work) {
    ascii_ = flag_argument(arguments, 1, false);
    sorts_ = flag_argument(arguments, 4, false);
    if (arguments.is_set(2)) {
      indent_ = arguments[2].is_text() ? arguments[2].text() : spaces(arguments);
      comma_ = Text(",");
    }
    if (!arguments.is_set(3)) return;
    const Value& separators = arguments[3];
    if (!separators.is_sequence() || separators.items().size() != 2 ||
        !separators.items()[0].is_text() || !separators.items()[1].is_text())
      work.refuse("the filter tojson gets wrong separators", {}, "a pair of texts");
    comma_ = separators.items()[0].text();
    colon_ = separators.items()[1].text();
  }

  Value run(const Value& value) {
    write(value, -1, 1);
    return Value::of(out_.finish());
  }

 private:
  Text spaces(const Arguments& arguments) {
    const int64_t width = std::max<int64_t>(integer_argument(arguments, 2, 0, work_), 0);
    work_.take_many(static_cast<uint64_t>(width), 1);
    return Text(std::string(static_cast<size_t>(width), ' '));
  }

  /// `owner`: the source of the enclosing value, or -1.
  void write(const Value& value, int32_t owner, int level) {
    work_.step();
    if (owner < 0) owner = value.source();
    switch (value.kind()) {
      case Kind::kText:
        return write_text(value.text(), owner);
      case Kind::kList:
      case Kind::kTuple:
        return write_items(value.items(), owner, level);
      case Kind::kDict:
        return write_entries(value.dict(), owner, level);
      default:
        return out_.append_owned(scalar(value), owner);
    }
  }

  std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.boolean() ? "true" : "false";
      case Kind::kInt:
        return std::to_string(value.integer());
      case Kind::kFloat:
        return json_float(value.real());
      default:
        work_.refuse("the filter tojson gets what JSON does not have",
                     std::string("a ") + type_name(value));
    }
  }

  void write_text(const Text& text, int32_t owner) {
    const std::string_view bytes = text.bytes();
    const bool owned = owner >= 0 && !text.has_origin();
    const auto write_plain = [&](size_t begin, size_t end) {
      if (owned) return out_.append_owned(bytes.substr(begin, end - begin), owner);
      out_.append(text, begin, end);
    };
    out_.append_owned("\"", owner);
    size_t plain = 0;
    for (size_t at = 0; at < bytes.size();) {
      const auto byte = static_cast<unsigned char>(bytes[at]);
      if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !ascii_)) {
        ++at;
        continue;
      }
      const size_t begin = at;
      const std::string escape = json_escape(next_point(bytes, &at), ascii_);
      write_plain(plain, begin);
      plain = at;
      owned ? out_.append_owned(escape, owner) : out_.append_for(escape, text, begin, at);
    }
    write_plain(plain, bytes.size());
    out_.append_owned("\"", owner);
  }

  void write_separator(const Text& text, int32_t owner) {
    text.has_origin() ? out_.append(text) : out_.append_owned(text.bytes(), owner);
  }

  /// Starts a new line at this level, if indentation is requested.
  void write_line(int32_t owner, int level) {
    if (!indent_) return;
    out_.append_owned("\n", owner);
    for (int i = 0; i < level; ++i) write_separator(*indent_, owner);
  }

  void write_items(const std::vector<Value>& items, int32_t owner, int level) {
    if (items.empty()) return out_.append_owned("[]", owner);
    out_.append_owned("[", owner);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) write_separator(comma_, owner);
      write_line(owner, level);
      write(items[i], owner, level + 1);
    }
    write_line(owner, level - 1);
    out_.append_owned("]", owner);
  }

  void write_key(const Value& key, int32_t owner) {
    if (key.is_text()) return write_text(key.text(), owner);
    if (!key.is_number() && !key.is(Kind::kNone))
      work_.refuse("the filter tojson gets a key that JSON does not have", type_name(key));
    out_.append_owned("\"" + scalar(key) + "\"", owner);
  }

  void write_entries(const DictObject& dict, int32_t owner, int level) {
    if (dict.entries.empty()) return out_.append_owned("{}", owner);
    std::vector<const std::pair<Value, Value>*> entries;
    work_.take(dict.entries.size() * sizeof(std::pair<Value, Value>*));
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (sorts_) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less(a->first, b->first, work_);
      });
    }
    out_.append_owned("{", owner);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) write_separator(comma_, owner);
      write_line(owner, level);
      write_key(entries[i]->first, owner);
      write_separator(colon_, owner);
      write(entries[i]->second, owner, level + 1);
    }
    write_line(owner, level - 1);
    out_.append_owned("}", owner);
  }

  Work& work_;
  TextBuilder out_;
  bool ascii_ = false, sorts_ = false;
  std::optional<Text> indent_;
  Text comma_ = Text(", "), colon_ = Text(": ");
};

}  // namespace

Value do_tojson(Arguments& arguments, Work& work) {
  return JsonWriter(arguments, work).run(arguments[0]);
}

}  // namespace lft::text::jinja
