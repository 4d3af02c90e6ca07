// The tokens of a model and the added tokens: ids, names, and the search for added tokens in a
// text. Independent of merges.
#pragma once
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/text/pipeline/added_tokens.h"
#include "src/text/pipeline/bpe.h"

namespace lft::text {

class Vocabulary {
 public:
  explicit Vocabulary(const TokenMap& model);
  /// As in the tokenizers library: a token of the model keeps its id, a new one gets the next id,
  /// an existing one gets the new flags. kInput if `token.id` (unless -1) differs, or the id is in
  /// use.
  void add(AddedToken token, const std::string& where);
  bool has_added(const std::string& content) const { return added_ids_.contains(content); }
  const std::vector<AddedToken>& added() const { return added_; }

  int64_t id_of(const std::string& token) const;
  const std::string& token_of(int64_t id) const;           // "" when absent
  int64_t size() const { return int64_t(names_.size()); }  // 1 + highest id
  bool is_special(const std::string& token) const { return special_.contains(token); }
  bool is_special(int64_t id) const {
    return id >= 0 && id < static_cast<int64_t>(special_ids_.size()) &&
           special_ids_[static_cast<size_t>(id)];
  }

 private:
  void put(int64_t id, const std::string& token, const std::string& where);

  TokenMap model_;
  int64_t model_size_;              // number of entries of the model
  std::vector<std::string> names_;  // by id; "" for an unused id
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, size_t> added_ids_;  // content -> index in added_
  std::unordered_set<std::string> special_;
  std::vector<bool> special_ids_;
};

}  // namespace lft::text
