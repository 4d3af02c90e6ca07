// Byte-pair encoding of one word, with byte fallback, merges ranked by order. Knows no added tokens
// and no normalisation.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/io/json.h"

namespace lft::text {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenMap = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

/// A token of a word: the bytes [begin, end) of it.
struct Piece {
  int64_t id;
  uint32_t begin, end;
  bool operator==(const Piece&) const = default;
};

class Bpe {
 public:
  /// "model" of tokenizer.json. kInput: not BPE, ids used twice or out of range, a merge that names
  /// no token.
  Bpe(const io::Json& json, const std::string& where);
  /// Pieces in order. n log n in the word.
  std::vector<Piece> encode(std::string_view word) const;

  const TokenMap& vocab() const { return vocab_; }
  int64_t id_of(std::string_view token) const;
  bool ignore_merges() const { return ignore_merges_; }
  bool byte_fallback() const { return byte_fallback_; }

 private:
  struct Merge {
    uint64_t pair = kNoPair;  // left << 32 | right
    uint32_t rank = 0;
    int32_t id = 0;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;
  struct Symbol {
    int64_t id;
    int32_t previous, next;
    uint32_t length;  // bytes; 0: merged away
  };
  void read_vocab(const io::Json& json, const std::string& where);
  void read_merges(const io::Json& json, const std::string& where);
  std::vector<Symbol> symbols(std::string_view word) const;
  void merge(std::vector<Symbol>& symbols) const;
  const Merge* merge_of(int64_t left, int64_t right) const;
  size_t slot_of(uint64_t pair) const;

  TokenMap vocab_;
  std::vector<Merge> merges_;  // a hash table: a pair in its slot or the next free one after it
  int64_t byte_ids_[256];      // <0x00> to <0xFF>, -1 where the vocabulary has none
  int64_t ascii_ids_[128];     // of one-byte tokens, -1 where the vocabulary has none
  int64_t unk_ = -1;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

}  // namespace lft::text
