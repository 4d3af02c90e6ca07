#include "src/text/pipeline/bpe.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>
#include <queue>
#include <utility>

#include "src/text/pipeline/aligned.h"
#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

constexpr int64_t kMaxId = (1 << 24) - 1;  // limits the size of tables by id
constexpr size_t kShort = 48;              // symbols up to which a scan is faster than a queue
constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;

/// The bytes of a character as one number; 0 if there is none.
uint32_t packed(std::string_view character) {
  uint32_t bytes = 0;
  for (const char c : character) bytes = bytes << 8 | uint8_t(c);
  return bytes;
}

/// A merge is "left right" or ["left", "right"].
std::pair<std::string, std::string> read_pair(const io::Json& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  bad_tokenizer(where, "merge is not a pair of tokens",
                merge.is_string() ? merge.get<std::string>() : merge.type_name(),
                "\"left right\" or [\"left\", \"right\"]");
}

}  // namespace

Bpe::Bpe(const io::Json& json, const std::string& where) {
  if (!json.is_object())
    bad_tokenizer(where, "tokenizer has no model", json.type_name(), "an object");
  const std::string type = text_or(json, "type", "BPE", where);
  if (type != "BPE") unsupported_component(where, "model", type);
  if (is_set(json, "dropout") && json["dropout"] != 0.0)
    unsupported_component(where, "model option", "dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_or(json, key, "", where).empty()) unsupported_component(where, "model option", key);
  }
  fuse_unk_ = flag_or(json, "fuse_unk", false, where);
  byte_fallback_ = flag_or(json, "byte_fallback", false, where);
  ignore_merges_ = flag_or(json, "ignore_merges", false, where);
  read_vocab(json, where);
  read_merges(json, where);
  const std::string unk = text_or(json, "unk_token", "", where);
  if (!unk.empty() && (unk_ = int32_t(id_of(unk))) < 0) {
    bad_tokenizer(where + ".unk_token", "unknown token is not in the vocabulary", unk,
                  "a token of the vocabulary");
  }
  read_characters();
  find_neighbours();
}

void Bpe::read_vocab(const io::Json& json, const std::string& where) {
  if (!is_set(json, "vocab") || !json["vocab"].is_object()) {
    bad_tokenizer(where, "vocabulary is missing", {}, "an object \"vocab\" from tokens to ids");
  }
  std::unordered_map<int64_t, const std::string*> seen;
  vocab_.reserve(json["vocab"].size());
  for (const auto& [token, id] : json["vocab"].items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(kMaxId)) {
      bad_tokenizer(where + ".vocab", "token id is not a whole number in range",
                    token + ": " + id.dump(), "0 to " + std::to_string(kMaxId));
    }
    const auto& stored = *vocab_.emplace(token, id.get<int64_t>()).first;
    const auto [it, fresh] = seen.emplace(stored.second, &stored.first);
    if (!fresh) {
      bad_tokenizer(where + ".vocab", "two tokens have one id",
                    *it->second + " and " + token + ": " + std::to_string(stored.second),
                    "one token an id");
    }
  }
}

void Bpe::read_merges(const io::Json& json, const std::string& where) {
  const io::Json& list = array_of(json, "merges", where);
  merges_.resize(std::bit_ceil(2 * list.size() + 1));
  uint32_t rank = 0;
  for (const io::Json& merge : list) {
    const std::string place = where + ".merges[" + std::to_string(rank) + "]";
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = read_pair(merge, place);
    const int64_t a = id_of(left), b = id_of(right), joined = id_of(left + right);
    if (a < 0 || b < 0 || joined < 0) {
      bad_tokenizer(place, "merge names a token that the vocabulary lacks",
                    a < 0   ? left
                    : b < 0 ? right
                            : left + right,
                    "tokens of the vocabulary");
    }
    merges_[slot_of(int32_t(a), int32_t(b))] = {uint64_t(a) << 32 | uint64_t(b), rank++,
                                                int32_t(joined)};
  }
}

void Bpe::read_characters() {
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", unsigned(byte));
    byte_ids_[byte] = int32_t(id_of(name));
  }
  for (int c = 0; c < 128; ++c) ascii_ids_[c] = int32_t(id_of(std::string(1, char(c))));
  std::vector<std::pair<uint32_t, int32_t>> found;
  for (const auto& [token, id] : vocab_) {
    if (token.size() > 1 && token.size() == utf8_length(token, 0))
      found.emplace_back(packed(token), int32_t(id));
  }
  characters_.resize(std::bit_ceil(2 * found.size() + 1));
  const size_t mask = characters_.size() - 1;
  for (const auto& one : found) {
    size_t slot = (one.first * kMix) >> 32 & mask;
    while (characters_[slot].first != 0) slot = (slot + 1) & mask;
    characters_[slot] = one;
  }
}

/// Tokens begin and end with symbols that exist before any merge. A merge can only cross the border
/// between two symbols if they are the last symbol of its left token and the first of its right
/// one. All these pairs are put in `merges_`; a word may be split between any other two symbols,
/// since the parts merge independently. If a token can come from different symbols (a vocabulary
/// that spells the names of bytes), nothing is split.
void Bpe::find_neighbours() {
  int64_t most = -1;
  for (const auto& [token, id] : vocab_) most = std::max(most, id);
  std::vector<int32_t> first(size_t(most + 1), -1), last;
  const auto starts = [&](int32_t id) {
    if (id >= 0) first[size_t(id)] = id;
  };
  for (const int32_t id : ascii_ids_) starts(id);
  for (const auto& [character, id] : characters_) starts(character == 0 ? -1 : id);
  if (byte_fallback_)
    for (const int32_t id : byte_ids_) starts(id);
  starts(unk_);
  last = first;
  bool changed = true;
  const auto take = [&](int32_t& to, int32_t from) {
    if (from < 0 || to == from) return true;
    changed = true;
    return std::exchange(to, from) < 0;
  };
  while (changed) {
    changed = false;
    for (const Merge& merge : merges_) {
      if (merge.pair == kNoPair) continue;
      if (!take(first[size_t(merge.id)], first[merge.pair >> 32]) ||
          !take(last[size_t(merge.id)], last[merge.pair & UINT32_MAX]))
        return;
    }
  }
  std::vector<Merge> all;
  for (const Merge& merge : merges_) {
    if (merge.pair == kNoPair) continue;
    all.push_back(merge);
    const int32_t left = last[merge.pair >> 32], right = first[merge.pair & UINT32_MAX];
    if (left >= 0 && right >= 0) all.push_back({.pair = uint64_t(left) << 32 | uint64_t(right)});
  }
  merges_.assign(std::bit_ceil(2 * all.size() + 1), {});
  for (const Merge& merge : all) {
    Merge& slot = merges_[slot_of(int32_t(merge.pair >> 32), int32_t(merge.pair & UINT32_MAX))];
    if (merge.rank < kNever || slot.pair == kNoPair) slot = merge;
  }
  cuts_ = true;
}

int64_t Bpe::id_of(std::string_view token) const {
  const auto it = vocab_.find(token);
  return it == vocab_.end() ? -1 : it->second;
}

int32_t Bpe::id_of_character(std::string_view character) const {
  if (character.size() == 1) return ascii_ids_[uint8_t(character[0])];
  const uint32_t wanted = packed(character);
  const size_t mask = characters_.size() - 1;
  size_t slot = (wanted * kMix) >> 32 & mask;
  while (characters_[slot].first != wanted && characters_[slot].first != 0)
    slot = (slot + 1) & mask;
  return characters_[slot].first == 0 ? -1 : characters_[slot].second;
}

/// The slot of the pair, or the free slot for it. At most half of the slots are used.
size_t Bpe::slot_of(int32_t left, int32_t right) const {
  const uint64_t pair = uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  const size_t mask = merges_.size() - 1;
  size_t slot = (pair * kMix) >> 32 & mask;
  while (merges_[slot].pair != pair && merges_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

/// Calls add(id, bytes) for each initial symbol of the word.
template <typename Add>
void Bpe::symbols(std::string_view word, const Add& add) const {
  uint32_t unknown = 0;  // bytes of the unknown token that is still growing
  const auto flush = [&] {
    if (unknown > 0) add(unk_, unknown);
    unknown = 0;
  };
  for (size_t pos = 0; pos < word.size();) {
    const std::string_view one = word.substr(pos, utf8_length(word, pos));
    pos += one.size();
    if (const int32_t id = id_of_character(one); id >= 0) {
      flush();
      add(id, uint32_t(one.size()));
      continue;
    }
    bool bytes = byte_fallback_;
    for (const char c : one) bytes = bytes && byte_ids_[uint8_t(c)] >= 0;
    if (bytes) {
      for (const char c : one)
        add(byte_ids_[uint8_t(c)],
            1);  // a growing unknown token comes after them, as in the tokenizers library
      continue;
    }
    if (!fuse_unk_) flush();
    if (unk_ >= 0) unknown += uint32_t(one.size());
  }
  flush();
}

/// Symbols between two split points; merges[i] is the possible merge of symbols i and i + 1.
struct Bpe::Part {
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;
};

void Bpe::merge(Part& part) const {
  if (part.symbols.size() < 2) return;
  part.symbols.size() <= kShort ? merge_short(part) : merge_long(part);
}

/// Applies the merge of the lowest rank first; of equal ranks the leftmost.
void Bpe::merge_short(Part& part) const {
  std::vector<Symbol>& symbols = part.symbols;
  std::vector<Merge>& merges = part.merges;
  while (!merges.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < merges.size(); ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == kNever) return;
    symbols[best].id = merges[best].id;
    symbols[best].length += symbols[best + 1].length;
    symbols.erase(symbols.begin() + ptrdiff_t(best) + 1);
    merges.erase(merges.begin() + ptrdiff_t(best));
    if (best > 0) merges[best - 1] = merge_of(symbols[best - 1].id, symbols[best].id);
    if (best < merges.size()) merges[best] = merge_of(symbols[best].id, symbols[best + 1].id);
  }
}

struct Bpe::Linked {
  Symbol symbol;  // length 0 once it is merged
  int32_t previous, next;
};

/// The same with a priority queue.
void Bpe::merge_long(Part& part) const {
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::vector<Candidate> first;
  std::vector<Linked> linked;
  const auto count = int32_t(part.symbols.size());
  linked.reserve(part.symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    linked.push_back({part.symbols[size_t(i)], i - 1, i + 1 < count ? i + 1 : -1});
    if (i + 1 == count || part.merges[size_t(i)].rank == kNever) continue;
    first.push_back({part.merges[size_t(i)].rank, i, part.merges[size_t(i)].id});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(first));
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Merge& merge = merge_of(linked[size_t(left)].symbol.id, linked[size_t(right)].symbol.id);
    if (merge.rank < kNever) queue.push({merge.rank, left, merge.id});
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Linked& left = linked[size_t(top.position)];
    if (left.symbol.length == 0 || left.next < 0) continue;
    Linked& right = linked[size_t(left.next)];
    if (merge_of(left.symbol.id, right.symbol.id).id != top.id)
      continue;  // one of the two symbols has changed since
    left.symbol = {top.id, left.symbol.length + right.symbol.length};
    left.next = right.next;
    right.symbol.length = 0;
    if (left.next >= 0) linked[size_t(left.next)].previous = top.position;
    offer(left.previous, top.position);
    offer(top.position, left.next);
  }
  part.symbols.clear();
  for (const Linked& one : linked)
    if (one.symbol.length > 0) part.symbols.push_back(one.symbol);
}

void Bpe::encode(std::string_view word, std::vector<Piece>& out) const {
  if (ignore_merges_) {
    if (const int64_t id = id_of(word); id >= 0) {
      out.push_back({id, 0, uint32_t(word.size())});
      return;
    }
  }
  if (word.size() > size_t(std::numeric_limits<int32_t>::max())) {
    bad_tokenizer("text", "text too long to tokenise", std::to_string(word.size()) + " bytes",
                  "less than 2 GiB", "split the text into several");
  }
  thread_local Part part;
  uint32_t pos = 0;
  const auto finish = [&] {
    merge(part);
    for (const Symbol& symbol : part.symbols) {
      out.push_back({symbol.id, pos, pos + symbol.length});
      pos += symbol.length;
    }
    part.symbols.clear();
    part.merges.clear();
  };
  symbols(word, [&](int32_t id, uint32_t length) {
    if (!part.symbols.empty()) {
      const Merge& merge = merge_of(part.symbols.back().id, id);
      if (cuts_ && merge.pair == kNoPair)
        finish();
      else
        part.merges.push_back(merge);
    }
    part.symbols.push_back({id, length});
  });
  finish();
}

}  // namespace lft::text
