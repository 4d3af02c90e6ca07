#include "src/text/pipeline/pre_tokenizer.h"

#include <algorithm>
#include <map>

#include "src/text/pipeline/byte_level.h"
#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

constexpr const char* kGpt2Words =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

}  // namespace

PreTokenizer::PreTokenizer(const io::Json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

void PreTokenizer::add(const io::Json& json, const std::string& where) {
  const std::string type = type_of(json, where);
  if (type == "Sequence") {
    for (const io::Json& part : array_of(json, "pretokenizers", where)) add(part, where);
  } else if (type == "Metaspace") {
    add_metaspace(json, where);
  } else if (type == "Split") {
    add_split(json, where);
  } else if (type == "Digits") {
    add_digits(json, where);
  } else if (type == "ByteLevel") {
    add_byte_level(json, where);
  } else {
    unsupported_component(where, "pre_tokenizer", type);
  }
}

void PreTokenizer::add_metaspace(const io::Json& json, const std::string& where) {
  Step step{.kind = Kind::kMetaspace, .replacement = text_or(json, "replacement", "", where)};
  if (step.replacement.empty() || utf8_length(step.replacement, 0) != step.replacement.size()) {
    bad_tokenizer(where, "Metaspace replacement is not one character", step.replacement,
                  "one character");
  }
  const bool silent = !flag_or(json, "add_prefix_space", true, where);  // older spelling of "never"
  const std::string scheme = text_or(json, "prepend_scheme", "always", where);
  if (scheme != "always" && scheme != "first" && scheme != "never")
    unsupported_component(where, "Metaspace prepend_scheme", scheme);
  if (silent && is_set(json, "prepend_scheme") && scheme != "never") {
    bad_tokenizer(where, "add_prefix_space does not match prepend_scheme", "false and " + scheme,
                  "false and never");
  }
  step.prepend = silent || scheme == "never" ? Prepend::kNever
                 : scheme == "first"         ? Prepend::kFirst
                                             : Prepend::kAlways;
  step.split = flag_or(json, "split", true, where);
  step.behavior = Behavior::kMergedWithNext;
  step.pattern.emplace_back(io::Json{{"String", step.replacement}}, where);
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_split(const io::Json& json, const std::string& where) {
  Step step{.kind = Kind::kSplit, .split = true, .invert = flag_or(json, "invert", false, where)};
  step.pattern.emplace_back(json.contains("pattern") ? json["pattern"] : io::Json(),
                            where + ".pattern");
  const std::string behavior = text_or(json, "behavior", "", where);
  static const std::map<std::string, Behavior> kBehaviors = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const auto known = kBehaviors.find(behavior);
  if (known == kBehaviors.end()) unsupported_component(where, "Split behavior", behavior);
  step.behavior = known->second;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_digits(const io::Json& json, const std::string& where) {
  Step step{.kind = Kind::kSplit, .split = true};
  step.pattern.emplace_back(io::Json{{"Regex", "\\p{N}"}}, where);
  step.behavior = flag_or(json, "individual_digits", false, where) ? Behavior::kIsolated
                                                                   : Behavior::kContiguous;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_byte_level(const io::Json& json, const std::string& where) {
  Step step{.kind = Kind::kByteLevel, .replacement = " "};
  step.prepend =
      flag_or(json, "add_prefix_space", true, where) ? Prepend::kAlways : Prepend::kNever;
  step.split = flag_or(json, "use_regex", true, where);
  step.pattern.emplace_back(io::Json{{"Regex", kGpt2Words}}, where);
  steps_.push_back(std::move(step));
}

std::vector<ByteRange> PreTokenizer::join(Behavior behavior, const std::vector<Part>& parts) {
  std::vector<ByteRange> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const bool before = i > 0 && parts[i - 1].is_match;
    const bool extend =
        (behavior == Behavior::kContiguous && i > 0 && part.is_match == before) ||
        (behavior == Behavior::kMergedWithPrevious && i > 0 && part.is_match && !before) ||
        (behavior == Behavior::kMergedWithNext && i > 0 && !part.is_match && before);
    if (behavior == Behavior::kRemoved && part.is_match) continue;
    if (extend)
      out.back().end = part.range.end;
    else
      out.push_back(part.range);
  }
  return out;
}

std::vector<ByteRange> PreTokenizer::cut(const Step& step, std::string_view text) {
  if (!step.split) return {{0, uint32_t(text.size())}};
  std::vector<Part> parts;
  uint32_t done = 0;
  const auto gap = [&](uint32_t end) {
    if (done < end) parts.push_back({{done, end}, step.invert});
  };
  for (const ByteRange& match : step.pattern[0].find_all(text)) {
    gap(match.begin);
    parts.push_back({match, !step.invert});
    done = match.end;
  }
  gap(uint32_t(text.size()));
  return join(step.behavior, parts);
}

Words PreTokenizer::run(const Step& step, const Words& in) {
  Words out;
  for (const ByteRange& range : in.words) {
    Aligned word = in.text.slice(range.begin, range.end);
    if (step.kind == Kind::kMetaspace) {
      static const Pattern space(io::Json{{"String", " "}}, "Metaspace");
      word = replace_all(word, space.find_all(word.text), step.replacement);
    }
    const bool wanted = step.prepend == Prepend::kAlways ||
                        (step.prepend == Prepend::kFirst && word.source(0, 0).begin == 0);
    if (wanted && !word.text.starts_with(step.replacement)) {
      Aligned with;
      with.append(step.replacement, word.source(0, 1));
      with.append(word, 0, word.text.size());
      word = std::move(with);
    }
    for (const ByteRange& part : cut(step, word.text)) {
      const auto begin = uint32_t(out.text.text.size());
      if (step.kind == Kind::kByteLevel) {
        for (uint32_t i = part.begin; i < part.end; ++i)
          out.text.append(byte_to_char(uint8_t(word.text[i])), word.at[i]);
      } else {
        out.text.append(word, part.begin, part.end);
      }
      if (out.text.text.size() > begin)
        out.words.push_back({begin, uint32_t(out.text.text.size())});
    }
  }
  return out;
}

Words PreTokenizer::apply(Aligned segment) const {
  const size_t source = segment.text.size();
  Words words{std::move(segment), {}};
  if (!words.text.empty()) words.words.push_back({0, uint32_t(words.text.text.size())});
  for (const Step& step : steps_) {
    words = run(step, words);  // at most 5 bytes per byte
    check_growth(words.text.text.size(), source);
  }
  return words;
}

}  // namespace lft::text
