#include "src/text/pipeline/vocabulary.h"

#include <algorithm>

#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

constexpr size_t kMaxAddedBytes = 1024;  // keeps the search for added tokens linear

}  // namespace

Vocabulary::Vocabulary(const TokenMap& model) : model_(model), model_size_(int64_t(model.size())) {
  for (const auto& [token, id] : model) put(id, token, "vocabulary");
}

void Vocabulary::put(int64_t id, const std::string& token, const std::string& where) {
  if (size_t(id) >= names_.size()) names_.resize(size_t(id) + 1);
  std::string& name = names_[size_t(id)];
  if (!name.empty() && name != token) {
    bad_tokenizer(where, "two tokens have one id",
                  name + " and " + token + ": " + std::to_string(id), "one token an id");
  }
  name = token;
}

void Vocabulary::add(AddedToken token, const std::string& where) {
  if (token.content.empty()) return;
  if (token.content.size() > kMaxAddedBytes) {
    bad_tokenizer(where, "added token is too long", std::to_string(token.content.size()) + " bytes",
                  "at most " + std::to_string(kMaxAddedBytes) + " bytes",
                  "shorten it, or take it out");
  }
  int64_t id = id_of(token.content);
  if (id < 0) {
    id = model_size_;
    for (const AddedToken& other : added_) id = std::max(id, other.id + 1);
  }
  if (token.id >= 0 && token.id != id) {
    bad_tokenizer(
        where, "added token has another id than its place gives it",
        token.content + ": " + std::to_string(token.id), std::to_string(id),
        "list added tokens in the order of their ids, without gaps, after the vocabulary");
  }
  token.id = id;
  put(id, token.content, where);
  if (token.special) {
    special_.insert(token.content);
    special_ids_.resize(std::max(special_ids_.size(), static_cast<size_t>(id) + 1));
    special_ids_[static_cast<size_t>(id)] = true;
  }
  const auto [it, fresh] = added_ids_.try_emplace(token.content, added_.size());
  if (fresh)
    added_.push_back(std::move(token));
  else
    added_[it->second] = std::move(token);
}

int64_t Vocabulary::id_of(const std::string& token) const {
  if (const auto it = added_ids_.find(token); it != added_ids_.end()) return added_[it->second].id;
  const auto it = model_.find(token);
  return it == model_.end() ? -1 : it->second;
}

const std::string& Vocabulary::token_of(int64_t id) const {
  static const std::string none;
  return id >= 0 && size_t(id) < names_.size() ? names_[size_t(id)] : none;
}

}  // namespace lft::text
