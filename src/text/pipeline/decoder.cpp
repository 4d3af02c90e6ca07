#include "src/text/pipeline/decoder.h"

#include <charconv>

#include "src/text/pipeline/byte_level.h"
#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

constexpr const char* kMetaspace = "\xE2\x96\x81";             // U+2581
constexpr const char* kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// The byte of "<0xAB>", -1 for any other token.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const char* last = token.data() + 5;
  unsigned byte = 0;
  const auto [end, code] = std::from_chars(token.data() + 3, last, byte, 16);
  return code == std::errc{} && end == last ? static_cast<int>(byte) : -1;
}

/// Runs of byte tokens become their text, or one U+FFFD per byte if they are not UTF-8.
std::vector<std::string> join_bytes(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (to_valid_utf8(bytes) == bytes)
      out.push_back(bytes);
    else
      out.insert(out.end(), bytes.size(), kReplacementCharacter);
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const int byte = fallback_byte(token); byte >= 0) {
      bytes += char(byte);
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

/// *made: bytes produced by the tokens so far from source_bytes.
std::string replace(const Pattern& pattern, const std::string& text, std::string_view content,
                    size_t* made, size_t source_bytes) {
  std::string out;
  size_t done = 0;
  const std::vector<ByteRange> matches = pattern.find_all(text);
  check_growth(*made += text.size() + matches.size() * content.size(), source_bytes);
  for (const ByteRange& match : matches) {
    out.append(text, done, match.begin - done).append(content);
    done = match.end;
  }
  return out.append(text, done);
}

std::string strip(const std::string& token, const std::string& content, size_t start, size_t stop) {
  std::string_view rest = token;
  for (size_t i = 0; i < start && rest.starts_with(content); ++i)
    rest.remove_prefix(content.size());
  for (size_t i = 0; i < stop && rest.ends_with(content); ++i) rest.remove_suffix(content.size());
  return std::string(rest);
}

std::string bytes_of_level(const std::string& token) {
  std::string bytes;
  for (size_t i = 0; i < token.size(); i += utf8_length(token, i)) {
    const int byte = char_to_byte(utf8_decode(token, i));
    if (byte < 0) return token;  // an added token, copied as it is
    bytes += char(byte);
  }
  return bytes;
}

std::string from_byte_level(const std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_level(token);
  return to_valid_utf8(bytes);
}

}  // namespace

Decoder::Decoder(const io::Json& json, const std::string& where)
    : join_with_spaces_(json.is_null()) {
  if (!json.is_null()) add(json, where);
}

Decoder Decoder::llama(bool strip_first_space) {
  Decoder out;
  Step to_space{.kind = Kind::kReplace, .content = " "};
  to_space.pattern.emplace_back(io::Json{{"String", kMetaspace}}, "decoder");
  out.steps_.push_back(std::move(to_space));
  out.steps_.push_back({.kind = Kind::kByteFallback});
  out.steps_.push_back({.kind = Kind::kFuse});
  if (strip_first_space) out.steps_.push_back({.kind = Kind::kStrip, .content = " ", .start = 1});
  return out;
}

void Decoder::add(const io::Json& json, const std::string& where) {
  const std::string type = type_of(json, where);
  if (type == "Sequence") {
    for (const io::Json& part : array_of(json, "decoders", where)) add(part, where);
  } else if (type == "Replace") {
    Step step{.kind = Kind::kReplace, .content = text_or(json, "content", "", where)};
    step.pattern.emplace_back(json.contains("pattern") ? json["pattern"] : io::Json(),
                              where + ".pattern");
    steps_.push_back(std::move(step));
  } else if (type == "ByteFallback") {
    steps_.push_back({.kind = Kind::kByteFallback});
  } else if (type == "Fuse") {
    steps_.push_back({.kind = Kind::kFuse});
  } else if (type == "Strip") {
    add_strip(json, where);
  } else if (type == "ByteLevel") {
    steps_.push_back({.kind = Kind::kByteLevel});
  } else if (type == "Metaspace") {
    const bool never = !flag_or(json, "add_prefix_space", true, where) ||
                       text_or(json, "prepend_scheme", "always", where) == "never";
    Step step{.kind = Kind::kMetaspace,
              .content = text_or(json, "replacement", kMetaspace, where),
              .drop_first = !never};
    step.pattern.emplace_back(io::Json{{"String", step.content}}, where);
    steps_.push_back(std::move(step));
  } else {
    unsupported_component(where, "decoder", type);
  }
}

void Decoder::add_strip(const io::Json& json, const std::string& where) {
  Step step{.kind = Kind::kStrip, .content = text_or(json, "content", " ", where)};
  if (step.content.empty() || utf8_length(step.content, 0) != step.content.size()) {
    bad_tokenizer(where, "Strip content is not one character", step.content, "one character");
  }
  if (is_set(json, "start")) step.start = size_t(io::json_int(json, "start", 0, 1024, where));
  if (is_set(json, "stop")) step.stop = size_t(io::json_int(json, "stop", 0, 1024, where));
  steps_.push_back(std::move(step));
}

std::vector<std::string> Decoder::run(const Step& step, std::vector<std::string> tokens,
                                      size_t source_bytes) {
  size_t made = 0;
  switch (step.kind) {
    case Kind::kByteFallback:
      return join_bytes(tokens);
    case Kind::kByteLevel:
      return {from_byte_level(tokens)};
    case Kind::kFuse: {
      std::string all;
      for (const std::string& token : tokens) all += token;
      return {all};
    }
    case Kind::kReplace:
      for (std::string& token : tokens)
        token = replace(step.pattern[0], token, step.content, &made, source_bytes);
      return tokens;
    case Kind::kStrip:
      for (std::string& token : tokens) token = strip(token, step.content, step.start, step.stop);
      return tokens;
    case Kind::kMetaspace:
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = replace(step.pattern[0], tokens[i], i == 0 && step.drop_first ? "" : " ", &made,
                            source_bytes);
      }
      return tokens;
  }
  return tokens;
}

std::string Decoder::bytes_of(const std::string& token, bool first) const {
  std::string text = token;
  bool is_fused = false, is_byte = false;
  for (const Step& step : steps_) {
    size_t made = 0;
    if (is_byte) break;
    if (step.kind == Kind::kByteFallback) {
      const int byte = fallback_byte(text);
      is_byte = byte >= 0;
      if (is_byte) text = std::string(1, static_cast<char>(byte));
    } else if (step.kind == Kind::kByteLevel) {
      text = bytes_of_level(text);
    } else if (step.kind == Kind::kFuse) {
      is_fused = true;
    } else if (step.kind == Kind::kReplace) {
      text = replace(step.pattern[0], text, step.content, &made, token.size());
    } else if (step.kind == Kind::kMetaspace) {
      text =
          replace(step.pattern[0], text, first && step.drop_first ? "" : " ", &made, token.size());
    } else if (!is_fused || first) {  // the end of a fused text is unknown
      text = strip(text, step.content, step.start, is_fused ? 0 : step.stop);
    }
  }
  return join_with_spaces_ && !first ? " " + text : text;
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  size_t source_bytes = 0;
  for (const std::string& token : tokens) source_bytes += token.size();
  for (const Step& step : steps_) tokens = run(step, std::move(tokens), source_bytes);
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && join_with_spaces_) out += ' ';
    out += tokens[i];
  }
  return to_valid_utf8(out);
}

}  // namespace lft::text
