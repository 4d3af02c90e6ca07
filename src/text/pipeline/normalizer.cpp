#include "src/text/pipeline/normalizer.h"

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

Normalizer::Normalizer(const io::Json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

void Normalizer::add(const io::Json& json, const std::string& where) {
  const std::string type = type_of(json, where);
  if (type == "Sequence") {
    for (const io::Json& part : array_of(json, "normalizers", where)) add(part, where);
  } else if (type == "Prepend") {
    steps_.push_back({text_or(json, "prepend", "", where), {}});
  } else if (type == "Replace") {
    Step step{text_or(json, "content", "", where), {}};
    step.pattern.emplace_back(json.contains("pattern") ? json["pattern"] : io::Json(),
                              where + ".pattern");
    steps_.push_back(std::move(step));
  } else {
    unsupported_component(where, "normalizer", type);
  }
}

Aligned Normalizer::apply(Aligned text) const {
  const size_t source = text.text.size();
  for (const Step& step : steps_) {
    if (text.empty()) break;
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
