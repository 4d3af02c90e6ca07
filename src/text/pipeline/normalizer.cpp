#include "src/text/pipeline/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>

#include "kernels/common/error.h"
#include "src/text/pipeline/json_access.h"

namespace lft::text {

Pattern::Pattern(const io::Json& json, const std::string& where) {
  if (json.is_object() && json.size() == 1 && json.contains("String")) {
    literal_ = text_or(json, "String", "", where);
    if (!literal_.empty()) return;
  } else if (json.is_object() && json.size() == 1 && json.contains("Regex")) {
    regex_.emplace_back(text_or(json, "Regex", "", where), where);
    return;
  }
  bad_tokenizer(where, "pattern is neither a string nor a regular expression", {},
                "{\"String\": x} or {\"Regex\": x}, not empty");
}

std::vector<ByteRange> Pattern::find_all(std::string_view text) const {
  if (!regex_.empty()) return regex_[0].find_all(text);
  std::vector<ByteRange> out;
  for (size_t pos = text.find(literal_); pos != std::string_view::npos;
       pos = text.find(literal_, pos + literal_.size())) {
    out.push_back({uint32_t(pos), uint32_t(pos + literal_.size())});
  }
  return out;
}

Aligned replace_all(const Aligned& in, const std::vector<ByteRange>& matches,
                    std::string_view content) {
  Aligned out;
  out.text.reserve(in.text.size() + matches.size() * content.size());
  out.at.reserve(in.text.size() + matches.size() * content.size());
  size_t done = 0;
  for (const ByteRange& match : matches) {
    out.append(in, done, match.begin);
    out.append(content, in.source(match.begin, match.end));
    done = match.end;
  }
  out.append(in, done, in.text.size());
  return out;
}

Aligned compose(const Aligned& in) {
  Aligned out;
  out.text.reserve(in.text.size());
  out.at.reserve(in.text.size());
  const auto is_ascii = [&](size_t at) { return static_cast<uint8_t>(in.text[at]) < 0x80; };
  for (size_t begin = 0, end = 0; begin < in.text.size(); begin = end) {
    // An ASCII character composes with following characters but never with previous ones.
    for (end = begin + 1; end < in.text.size() && !is_ascii(end);) ++end;
    if (end == begin + 1 && is_ascii(begin)) {
      out.append(in, begin, end);
      continue;
    }
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(in.text.data() + begin),
                     static_cast<utf8proc_ssize_t>(end - begin), &made,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (size < 0) {
      refuse(ErrorKind::kResource, "a text cannot be brought into its composed form", {},
             utf8proc_errmsg(size), "memory for it", "split the text into several");
    }
    const std::string_view text(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
    if (text == std::string_view(in.text).substr(begin, end - begin)) {
      out.append(in, begin, end);
    } else {
      out.append(text, in.source(begin, end));
    }
    std::free(made);
  }
  return out;
}

Normalizer::Normalizer(const io::Json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

void Normalizer::add(const io::Json& json, const std::string& where) {
  const std::string type = type_of(json, where);
  if (type == "Sequence") {
    for (const io::Json& part : array_of(json, "normalizers", where)) add(part, where);
  } else if (type == "Prepend") {
    steps_.push_back({.content = text_or(json, "prepend", "", where), .pattern = {}});
  } else if (type == "Replace") {
    Step step{.content = text_or(json, "content", "", where), .pattern = {}};
    step.pattern.emplace_back(json.contains("pattern") ? json["pattern"] : io::Json(),
                              where + ".pattern");
    steps_.push_back(std::move(step));
  } else if (type == "NFC") {
    steps_.push_back({.content = {}, .pattern = {}, .nfc = true});
  } else {
    unsupported_component(where, "normalizer", type);
  }
}

Aligned Normalizer::apply(Aligned text) const {
  const size_t source = text.text.size();
  for (const Step& step : steps_) {
    if (text.empty()) break;
    if (step.nfc) {
      text = compose(text);
      continue;
    }
    if (!step.pattern.empty()) {
      const std::vector<ByteRange> matches = step.pattern[0].find_all(text.text);
      check_growth(text.text.size() + matches.size() * step.content.size(), source);
      text = replace_all(text, matches, step.content);
      continue;
    }
    check_growth(text.text.size() + step.content.size(), source);
    Aligned out;
    out.append(step.content, text.source(0, 1));
    out.append(text, 0, text.text.size());
    text = std::move(out);
  }
  return text;
}

std::string Normalizer::apply(std::string_view text) const { return apply(align_utf8(text)).text; }

}  // namespace lft::text
