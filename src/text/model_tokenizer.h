// A tokenizer of tokenizer.model alone, as LLaVA's slow LlamaTokenizer uses it. Reads no
// tokenizer.json.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/text/pipeline/decoder.h"
#include "src/text/sentencepiece_model.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"

namespace lft::text {

/// Special tokens are cut out, every stretch between them goes through the library by itself (with
/// its dummy prefix; "legacy": false in tokenizer_config.json puts one before the first stretch
/// only), and BOS is put in front unless add_bos_token is false.
class ModelTokenizer : public Tokenizer {
 public:
  explicit ModelTokenizer(const TokenizerFiles& files);
  std::vector<Token> encode(std::string_view text) const override;
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const override;
  int64_t vocab_size() const override { return vocabulary_.size(); }
  int64_t id_of(const std::string& token) const override { return vocabulary_.id_of(token); }
  std::string token_of(int64_t id) const override { return vocabulary_.token_of(id); }

 private:
  void encode_text(const Aligned& whole, const Segment& segment, std::vector<Token>& out) const;

  bool legacy_;
  SentencePieceModel model_;
  Vocabulary vocabulary_;
  Decoder decoder_;
  int64_t bos_ = -1, eos_ = -1;  // put around the text; -1: not
  std::unique_ptr<TokenMatcher> matcher_;
};

}  // namespace lft::text
