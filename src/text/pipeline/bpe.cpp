#include "src/text/pipeline/bpe.h"

#include <bit>
#include <cstdio>
#include <limits>
#include <queue>

#include "src/text/pipeline/aligned.h"
#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

constexpr int64_t kMaxId = (1 << 24) - 1;  // bounds what tables by id may cost

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
  if (!unk.empty() && (unk_ = id_of(unk)) < 0) {
    bad_tokenizer(where + ".unk_token", "unknown token is not in the vocabulary", unk,
                  "a token of the vocabulary");
  }
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", unsigned(byte));
    byte_ids_[byte] = id_of(name);
  }
  for (int c = 0; c < 128; ++c) ascii_ids_[c] = id_of(std::string(1, char(c)));
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
    const uint64_t pair = uint64_t(a) << 32 | uint64_t(b);
    merges_[slot_of(pair)] = {pair, rank++, int32_t(joined)};
  }
}

int64_t Bpe::id_of(std::string_view token) const {
  const auto it = vocab_.find(token);
  return it == vocab_.end() ? -1 : it->second;
}

const Bpe::Merge* Bpe::merge_of(int64_t left, int64_t right) const {
  const Merge& found = merges_[slot_of(uint64_t(left) << 32 | uint64_t(right))];
  return found.pair == kNoPair ? nullptr : &found;
}

/// Where the pair stands, or would. At most half of the slots are taken.
size_t Bpe::slot_of(uint64_t pair) const {
  const size_t mask = merges_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15u) >> 32 & mask;
  while (merges_[slot].pair != pair && merges_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

std::vector<Bpe::Symbol> Bpe::symbols(std::string_view word) const {
  std::vector<Symbol> out;
  out.reserve(word.size());
  const auto add = [&](int64_t id, size_t length) {
    out.push_back({id, int32_t(out.size()) - 1, int32_t(out.size()) + 1, uint32_t(length)});
  };
  size_t unknown = 0;  // bytes of the unknown token that is still growing
  const auto flush = [&] {
    if (unknown > 0) add(unk_, unknown);
    unknown = 0;
  };
  for (size_t pos = 0; pos < word.size();) {
    const std::string_view one = word.substr(pos, utf8_length(word, pos));
    pos += one.size();
    if (const int64_t id = one.size() == 1 ? ascii_ids_[uint8_t(one[0])] : id_of(one); id >= 0) {
      flush();
      add(id, one.size());
      continue;
    }
    bool bytes = byte_fallback_;
    for (const char c : one) bytes = bytes && byte_ids_[uint8_t(c)] >= 0;
    if (bytes) {
      for (const char c : one)
        add(byte_ids_[uint8_t(c)],
            1);  // a growing unknown goes after them, as in the tokenizers library
      continue;
    }
    if (!fuse_unk_) flush();
    if (unk_ >= 0) unknown += one.size();
  }
  flush();
  if (!out.empty()) out.back().next = -1;
  return out;
}

void Bpe::merge(std::vector<Symbol>& symbols) const {
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int64_t id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::vector<Candidate> first;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    if (const Merge* m = merge_of(symbols[i].id, symbols[i + 1].id))
      first.push_back({m->rank, int32_t(i), m->id});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(first));
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    if (const Merge* m = merge_of(symbols[size_t(left)].id, symbols[size_t(right)].id))
      queue.push({m->rank, left, m->id});
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[size_t(top.position)];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = symbols[size_t(left.next)];
    const Merge* m = merge_of(left.id, right.id);
    if (m == nullptr || m->id != top.id) continue;  // one of the two has changed since
    left.id = top.id;
    left.length += right.length;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[size_t(left.next)].previous = top.position;
    offer(left.previous, top.position);
    offer(top.position, left.next);
  }
}

std::vector<Piece> Bpe::encode(std::string_view word) const {
  if (ignore_merges_) {
    if (const int64_t id = id_of(word); id >= 0) return {{id, 0, uint32_t(word.size())}};
  }
  if (word.size() > size_t(std::numeric_limits<int32_t>::max())) {
    bad_tokenizer("text", "text too long to tokenise", std::to_string(word.size()) + " bytes",
                  "less than 2 GiB", "split the text into several");
  }
  std::vector<Symbol> merged = symbols(word);
  merge(merged);
  std::vector<Piece> out;
  uint32_t pos = 0;
  for (const Symbol& symbol : merged) {
    if (symbol.length == 0) continue;
    out.push_back({symbol.id, pos, pos + symbol.length});
    pos += symbol.length;
  }
  return out;
}

}  // namespace lft::text
