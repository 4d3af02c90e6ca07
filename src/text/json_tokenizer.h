// The tokenizer of a tokenizer.json: added tokens, normalizer, pre-tokenizer, BPE, template.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/text/pipeline/bpe.h"
#include "src/text/pipeline/decoder.h"
#include "src/text/pipeline/normalizer.h"
#include "src/text/pipeline/pre_tokenizer.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"

namespace lft::text {

class JsonTokenizer : public Tokenizer {
 public:
  explicit JsonTokenizer(const TokenizerFiles& files);
  std::vector<Token> encode(std::string_view text) const override;
  std::vector<Token> encode_with_plain(std::string_view text,
                                       const std::vector<ByteRange>& plain) const override;
  bool is_special(int64_t id) const override { return vocabulary_.is_special(id); }
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const override;
  std::string bytes_of(int64_t id, bool first) const override;
  int64_t vocab_size() const override { return vocabulary_.size(); }
  int64_t id_of(const std::string& token) const override { return vocabulary_.id_of(token); }
  std::string token_of(int64_t id) const override { return vocabulary_.token_of(id); }

 private:
  /// The token as the model writes it: an added token in its normalised form.
  const std::string& written(int64_t id) const;
  void read_template(const io::Json& json, const std::string& where);
  void read_single(const io::Json& json, const std::string& where);
  void add_file_tokens(const TokenizerFiles& files);
  void build_matchers();
  void encode_text(Aligned text, std::vector<Token>& out) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  Decoder decoder_;
  Vocabulary vocabulary_;
  std::vector<int64_t> before_, behind_;  // ids that the template adds around the text
  std::unordered_map<int64_t, std::string>
      normalized_names_;  // by id: added tokens that are searched for in a normalised form
  std::unique_ptr<TokenMatcher> raw_, normalized_;
};

}  // namespace lft::text
