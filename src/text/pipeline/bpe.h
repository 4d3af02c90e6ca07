// Byte-pair encoding of one word, with byte fallback and merges ranked by order. Independent of
// added tokens and normalisation.
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

/// A token of a word: its bytes [begin, end).
struct Piece {
  int64_t id;
  uint32_t begin, end;
  bool operator==(const Piece&) const = default;
};

class Bpe {
 public:
  /// Parses "model" of tokenizer.json. kInput: not BPE, ids duplicate or out of range, a merge
  /// without a token.
  Bpe(const io::Json& json, const std::string& where);
  /// Appends the pieces in order. O(n log n) in the word's length. Thread-safe.
  void encode(std::string_view word, std::vector<Piece>& out) const;

  const TokenMap& vocab() const { return vocab_; }
  int64_t id_of(std::string_view token) const;

 private:
  /// The possible merge of two adjacent symbols.
  struct Merge {
    uint64_t pair = kNoPair;  // left << 32 | right
    uint32_t rank = kNever;   // kNever: they do not merge, but a token contains them adjacently
    int32_t id = -1;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;
  static constexpr uint32_t kNever = UINT32_MAX;
  struct Symbol {
    int32_t id;
    uint32_t length;  // in bytes
  };
  struct Linked;
  struct Part;
  void read_vocab(const io::Json& json, const std::string& where);
  void read_merges(const io::Json& json, const std::string& where);
  void read_characters();
  void find_neighbours();
  int32_t id_of_character(std::string_view character) const;
  template <typename Add>
  void symbols(std::string_view word, const Add& add) const;
  void merge(Part& part) const;
  void merge_short(Part& part) const;
  void merge_long(Part& part) const;
  const Merge& merge_of(int32_t left, int32_t right) const { return merges_[slot_of(left, right)]; }
  size_t slot_of(int32_t left, int32_t right) const;

  TokenMap vocab_;
  std::vector<Merge> merges_;                             // a hash table with linear probing
  std::vector<std::pair<uint32_t, int32_t>> characters_;  // likewise: tokens of one character
  int32_t byte_ids_[256];   // <0x00> to <0xFF>, -1 if not in the vocabulary
  int32_t ascii_ids_[128];  // one-byte tokens, -1 if not in the vocabulary
  int32_t unk_ = -1;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  bool cuts_ = false;  // a word may be split between symbols that are adjacent in no token
};

}  // namespace lft::text
