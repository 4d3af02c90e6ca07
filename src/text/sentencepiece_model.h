// A SentencePiece model through the sentencepiece library, which is tried in a child process before
// it is used. Added tokens are handled elsewhere.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/pipeline/bpe.h"

namespace lft::text {

class SentencePieceModel {
 public:
  enum class Normalization {
    kOwn,            // as in the model file: charsmap, dummy prefix, extra white space
    kNoDummyPrefix,  // the same without the dummy prefix
  };
  /// Throws kInput: unreadable, not a SentencePiece model, or one that crashes or hangs the
  /// library.
  SentencePieceModel(const std::string& path, Normalization normalization);
  ~SentencePieceModel();

  /// Offsets are bytes of `text`; text dropped by normalisation belongs to no piece. `text` is
  /// valid UTF-8. Thread-safe.
  std::vector<Piece> encode(std::string_view text) const;

  int64_t size() const;
  std::string piece(int64_t id) const;
  bool is_control(int64_t id) const;  // <s>, </s> and the like: never matched in text
  bool is_unknown(int64_t id) const;
  bool is_byte(int64_t id) const;
  int64_t bos() const;  // -1: none
  int64_t eos() const;
  int64_t pad() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lft::text
