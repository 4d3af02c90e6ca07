#include "src/text/json_tokenizer.h"

#include <algorithm>

#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

const io::Json& part(const TokenizerFiles& files, const char* key) {
  static const io::Json none;
  const auto it = files.tokenizer.find(key);
  return it == files.tokenizer.end() ? none : *it;
}

std::string place(const TokenizerFiles& files, const char* key) {
  return files.path("tokenizer.json") + ": " + key;
}

}  // namespace

JsonTokenizer::JsonTokenizer(const TokenizerFiles& files)
    : normalizer_(part(files, "normalizer"), place(files, "normalizer")),
      pre_tokenizer_(part(files, "pre_tokenizer"), place(files, "pre_tokenizer")),
      bpe_(part(files, "model"), place(files, "model")),
      decoder_(part(files, "decoder"), place(files, "decoder")),
      vocabulary_(bpe_.vocab()) {
  if (const std::string version =
          text_or(files.tokenizer, "version", "1.0", files.path("tokenizer.json"));
      version != "1.0") {
    unsupported_component(files.path("tokenizer.json"), "version", version);
  }
  special_ = special_tokens(files);
  add_file_tokens(files);
  add_config_tokens(vocabulary_, files);
  if (special_.eos.empty() && vocabulary_.is_special("</s>")) special_.eos = "</s>";
  if (!part(files, "post_processor").is_null())
    read_template(part(files, "post_processor"), place(files, "post_processor"));
  build_matchers();
}

void JsonTokenizer::add_file_tokens(const TokenizerFiles& files) {
  if (!is_set(files.tokenizer, "added_tokens")) return;
  const std::string where = place(files, "added_tokens");
  for (const io::Json& json : array_of(files.tokenizer, "added_tokens", where)) {
    AddedToken token = read_added_token(json, where);
    token.id = io::json_int(json, "id", 0, INT32_MAX, where);
    if (vocabulary_.has_added(token.content)) {
      bad_tokenizer(where, "added token comes twice", token.content, "each token once");
    }
    vocabulary_.add(std::move(token), where);
  }
}

void JsonTokenizer::read_template(const io::Json& json, const std::string& where) {
  const std::string type = type_of(json, where);
  if (type == "Sequence") {
    for (const io::Json& one : array_of(json, "processors", where)) read_template(one, where);
  } else if (type == "TemplateProcessing") {
    read_single(json, where);
  } else if (type != "ByteLevel") {  // ByteLevel trims offsets and adds nothing
    unsupported_component(where, "post_processor", type);
  }
}

void JsonTokenizer::read_single(const io::Json& json, const std::string& where) {
  bool seen = false;
  for (const io::Json& piece : array_of(json, "single", where)) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (seen || text_or(piece["Sequence"], "id", "", where) != "A")
        unsupported_component(where, "template", piece.dump());
      seen = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken"))
      unsupported_component(where, "template", piece.dump());
    const std::string name = text_or(piece["SpecialToken"], "id", "", where);
    if (!is_set(json, "special_tokens") || !json["special_tokens"].is_object() ||
        !is_set(json["special_tokens"], name)) {
      bad_tokenizer(where, "template names a token that it does not define", name,
                    "an entry of special_tokens");
    }
    for (const io::Json& id : array_of(json["special_tokens"][name], "ids", where)) {
      if (!id.is_number_unsigned() || vocabulary_.token_of(id.get<int64_t>()).empty()) {
        bad_tokenizer(where, "template names an id that no token has", name + ": " + id.dump(),
                      "an id of the vocabulary");
      }
      (seen ? behind_ : before_).push_back(id.get<int64_t>());
    }
  }
  if (!seen) bad_tokenizer(where, "template leaves out the text", {}, "a Sequence A");
}

void JsonTokenizer::build_matchers() {
  std::vector<int> raw, normalized;
  std::vector<std::string> raw_patterns, normalized_patterns;
  const std::vector<AddedToken>& added = vocabulary_.added();
  for (size_t i = 0; i < added.size(); ++i) {
    if (!added[i].normalized) {
      raw.push_back(int(i));
      raw_patterns.push_back(added[i].content);
      continue;
    }
    std::string pattern = normalizer_.apply(added[i].content);
    if (pattern != added[i].content) normalized_names_[added[i].id] = pattern;
    if (pattern.empty()) continue;
    normalized.push_back(int(i));
    normalized_patterns.push_back(std::move(pattern));
  }
  raw_ = std::make_unique<TokenMatcher>(added, raw, raw_patterns);
  normalized_ = std::make_unique<TokenMatcher>(added, normalized, normalized_patterns);
}

void JsonTokenizer::encode_text(Aligned text, std::vector<Token>& out) const {
  const Words words = pre_tokenizer_.apply(std::move(text));
  std::vector<Piece> pieces;
  for (const ByteRange& word : words.words) {
    pieces.clear();
    bpe_.encode(std::string_view(words.text.text).substr(word.begin, word.end - word.begin),
                pieces);
    for (const Piece& piece : pieces) {
      const ByteRange source = words.text.source(word.begin + piece.begin, word.begin + piece.end);
      out.push_back({piece.id, source.begin, source.end});
    }
  }
}

std::vector<Token> JsonTokenizer::encode(std::string_view text) const {
  return encode_with_plain(text, {});
}

std::vector<Token> JsonTokenizer::encode_with_plain(std::string_view text,
                                                    const std::vector<ByteRange>& plain) const {
  std::vector<Token> out;
  for (const int64_t id : before_) out.push_back({id, 0, 0});
  const Aligned whole = align_utf8(text);
  const auto add_token = [&](const Aligned& from, const Segment& segment) {
    const ByteRange source = from.source(segment.begin, segment.end);
    out.push_back({vocabulary_.added()[size_t(segment.token)].id, source.begin, source.end});
  };
  const std::vector<AddedToken>& added = vocabulary_.added();
  for (const Segment& segment : raw_->split(whole.text, counted_in(added, whole, plain))) {
    if (segment.token >= 0) {
      add_token(whole, segment);
      continue;
    }
    Aligned normal = normalizer_.apply(whole.slice(segment.begin, segment.end));
    const auto counts = counted_in(added, normal, plain);
    for (const Segment& inner : normalized_->split(normal.text, counts)) {
      if (inner.token >= 0) {
        add_token(normal, inner);
      } else if (inner.end - inner.begin == normal.text.size()) {
        encode_text(std::move(normal), out);
        break;  // there is no other kind
      } else {
        encode_text(normal.slice(inner.begin, inner.end), out);
      }
    }
  }
  for (const int64_t id : behind_)
    out.push_back({id, uint32_t(text.size()), uint32_t(text.size())});
  return out;
}

const std::string& JsonTokenizer::written(int64_t id) const {
  const auto normal = normalized_names_.find(id);
  return normal != normalized_names_.end() ? normal->second : vocabulary_.token_of(id);
}

std::string JsonTokenizer::bytes_of(int64_t id, bool first) const {
  return is_special(id) ? written(id) : decoder_.bytes_of(written(id), first);
}

std::string JsonTokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int64_t id : ids) {
    const std::string& token = written(id);
    if (token.empty() || (skip_special && vocabulary_.is_special(token))) continue;
    tokens.push_back(token);
  }
  return decoder_.decode(std::move(tokens));
}

}  // namespace lft::text
