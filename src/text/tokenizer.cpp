#include "src/text/tokenizer.h"

#include "kernels/common/error.h"
#include "src/text/json_tokenizer.h"
#include "src/text/pipeline/json_access.h"
#include "src/text/sentencepiece_model.h"
#include "src/text/tokenizer_parts.h"

namespace lft::text {
namespace {

using Normalization = SentencePieceModel::Normalization;

TokenMap pieces_of(const SentencePieceModel& model, const std::string& where) {
  TokenMap out;
  for (int64_t id = 0; id < model.size(); ++id) {
    const auto [it, fresh] = out.emplace(model.piece(id), id);
    if (!fresh) {
      bad_tokenizer(where, "one piece has two ids",
                    it->first + ": " + std::to_string(it->second) + " and " + std::to_string(id),
                    "each piece once");
    }
  }
  return out;
}

std::string name_of(const SentencePieceModel& model, int64_t id) {
  return id < 0 ? "" : model.piece(id);
}

/// A tokenizer from tokenizer.model alone, as in LLaVA's slow LlamaTokenizer. Special tokens are
/// split off, each text between them is encoded separately (with its dummy prefix; "legacy": false
/// in tokenizer_config.json adds one before the first text only), and BOS is prepended unless
/// add_bos_token is false.
class ModelTokenizer : public Tokenizer {
 public:
  explicit ModelTokenizer(const TokenizerFiles& files)
      : legacy_(flag_or(files.config, "legacy", true, files.path("tokenizer_config.json"))),
        model_(files.path("tokenizer.model"),
               legacy_ ? Normalization::kOwn : Normalization::kNoDummyPrefix),
        vocabulary_(pieces_of(model_, files.path("tokenizer.model"))),
        decoder_(Decoder::llama(/*strip_first_space=*/true)) {
    const std::string where = files.path("tokenizer.model");
    special_ = special_tokens(files);
    if (special_.bos.empty()) special_.bos = name_of(model_, model_.bos());
    if (special_.eos.empty()) special_.eos = name_of(model_, model_.eos());
    if (special_.pad.empty()) special_.pad = name_of(model_, model_.pad());
    for (int64_t id = 0; id < model_.size(); ++id) {
      if (!model_.is_control(id) && !model_.is_unknown(id)) continue;
      vocabulary_.add({.id = id, .content = model_.piece(id), .special = true, .normalized = false},
                      where);
    }
    add_config_tokens(vocabulary_, files);
    if (flag_or(files.config, "add_bos_token", true, where) && !special_.bos.empty())
      bos_ = vocabulary_.id_of(special_.bos);
    if (flag_or(files.config, "add_eos_token", false, where) && !special_.eos.empty())
      eos_ = vocabulary_.id_of(special_.eos);

    std::vector<int> indices;
    std::vector<std::string> patterns;
    for (size_t i = 0; i < vocabulary_.added().size(); ++i) {
      indices.push_back(int(i));
      patterns.push_back(vocabulary_.added()[i].content);
    }
    matcher_ = std::make_unique<TokenMatcher>(vocabulary_.added(), indices, patterns);
  }

  std::vector<Token> encode(std::string_view text) const override {
    return encode_with_plain(text, {});
  }

  std::vector<Token> encode_with_plain(std::string_view text,
                                       const std::vector<ByteRange>& plain) const override {
    std::vector<Token> out;
    if (bos_ >= 0) out.push_back({bos_, 0, 0});
    const Aligned whole = align_utf8(text);
    const auto counts = counted_in(vocabulary_.added(), whole, plain);
    for (const Segment& segment : matcher_->split(whole.text, counts)) {
      if (segment.token < 0) {
        encode_text(whole, segment, out);
        continue;
      }
      const ByteRange source = whole.source(segment.begin, segment.end);
      out.push_back({vocabulary_.added()[size_t(segment.token)].id, source.begin, source.end});
    }
    if (eos_ >= 0) out.push_back({eos_, uint32_t(text.size()), uint32_t(text.size())});
    return out;
  }

  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const override {
    std::vector<std::string> tokens;
    for (const int64_t id : ids) {
      const std::string& token = vocabulary_.token_of(id);
      if (token.empty() || (skip_special && vocabulary_.is_special(token))) continue;
      tokens.push_back(token);
    }
    return decoder_.decode(std::move(tokens));
  }

  std::string bytes_of(int64_t id, bool first) const override {
    const std::string& token = vocabulary_.token_of(id);
    return is_special(id) ? token : decoder_.bytes_of(token, first);
  }

  int64_t vocab_size() const override { return vocabulary_.size(); }
  int64_t id_of(const std::string& token) const override { return vocabulary_.id_of(token); }
  std::string token_of(int64_t id) const override { return vocabulary_.token_of(id); }
  bool is_special(int64_t id) const override { return vocabulary_.is_special(id); }

 private:
  void encode_text(const Aligned& whole, const Segment& segment, std::vector<Token>& out) const {
    Aligned text;
    if (!legacy_ && segment.begin == 0) text.append(" ", whole.source(0, 1));
    text.append(whole, segment.begin, segment.end);
    for (const Piece& piece : model_.encode(text.text)) {
      // The inserted prefix has no bytes of the text: it belongs to the next character.
      const bool put_in = piece.begin == piece.end && piece.begin < text.text.size();
      const ByteRange source = text.source(piece.begin, put_in ? piece.begin + 1 : piece.end);
      out.push_back({piece.id, source.begin, source.end});
    }
  }

  bool legacy_;
  SentencePieceModel model_;
  Vocabulary vocabulary_;
  Decoder decoder_;
  int64_t bos_ = -1, eos_ = -1;  // ids added around the text; -1: none
  std::unique_ptr<TokenMatcher> matcher_;
};

}  // namespace

std::vector<Token> Tokenizer::encode_with_plain(std::string_view text,
                                                const std::vector<ByteRange>& plain) const {
  if (!plain.empty())
    throw Error(ErrorKind::kInternal, "a tokenizer that cannot read special tokens as text");
  return encode(text);
}

bool Tokenizer::is_special(int64_t) const { return false; }

std::string Tokenizer::bytes_of(int64_t id, bool) const { return decode({id}, false); }

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& model_dir) {
  const TokenizerFiles files = read_tokenizer_files(model_dir);
  std::unique_ptr<Tokenizer> tokenizer;
  if (files.tokenizer.is_null())
    tokenizer = std::make_unique<ModelTokenizer>(files);
  else
    tokenizer = std::make_unique<JsonTokenizer>(files);
  tokenizer->file_parts_ = text::file_parts(files, *tokenizer);
  return tokenizer;
}

}  // namespace lft::text
