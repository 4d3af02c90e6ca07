// Whether the answers of a file fit what they answer: contradictions, one answer for all, answers
// that belong to a neighbour. Holds hashes, no texts.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/data/rows/row.h"

namespace lft::debug {

/// A reply by what is read before it, images apart, and by itself.
struct ReplyHash {
  size_t context = 0, answer = 0;
};
std::vector<ReplyHash> reply_hashes(const data::Row& row);  // of the answers that are learnt

/// A hash of several, in their order.
size_t mix_hashes(size_t seed, size_t value);

class AnswerTally {
 public:
  explicit AnswerTally(const std::vector<data::Row>& rows) : rows_(rows), seen_(rows.size()) {}

  /// Rows in their order, those that cannot be read left out. Returns the first row that answers
  /// the same images and text otherwise.
  std::optional<size_t> add(size_t row, size_t images, const std::vector<ReplyHash>& replies);

  /// "all 12 rows have one answer"; empty where they do not, or where they are fewer than eight.
  std::string one_answer() const;
  /// Why answers seem to stand a row too early or too late; empty where they do not.
  std::string shifted() const;

 private:
  struct Seen {
    bool there = false;
    size_t input = 0, answer = 0;  // of the first reply
  };
  /// By shift: -1, 0, 1.
  struct Agreement {
    std::array<size_t, 3> asked{}, agree{};
    std::string shift_text(const std::string& what) const;
  };
  Agreement by_repeated_inputs() const;
  Agreement by_image_names() const;

  const std::vector<data::Row>& rows_;
  std::vector<Seen> seen_;
  struct First {
    size_t answer = 0, row = 0;
  };
  std::unordered_map<size_t, First> first_;  // by context
  size_t count_ = 0, answer_ = 0;
  bool alike_ = true;
};

}  // namespace lft::debug
