// Whether the answers of a file fit their questions: contradictions, one answer for all, answers
// that belong to a neighbour. It stores hashes, no texts.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/data/rows/row.h"

namespace lft::debug {

/// Hashes of a reply and of its context, with images separate.
struct ReplyHash {
  size_t context = 0, answer = 0;
};
std::vector<ReplyHash> reply_hashes(const data::Row& row);  // of the supervised answers

/// A hash of several hashes, in order.
size_t mix_hashes(size_t seed, size_t value);

class AnswerTally {
 public:
  explicit AnswerTally(const std::vector<data::Row>& rows) : rows_(rows), seen_(rows.size()) {}

  /// Adds rows in order, without those that cannot be read. Returns the first row with another
  /// answer to the same images and text.
  std::optional<size_t> add(size_t row, size_t images, const std::vector<ReplyHash>& replies);

  /// "all 12 rows have one answer"; empty if they do not, or if there are fewer than eight.
  std::string one_answer() const;
  /// Why answers seem to be shifted by one row; empty if they do not.
  std::string shifted() const;

 private:
  struct Seen {
    bool there = false;
    size_t input = 0, answer = 0;  // of the first reply
  };
  /// Counts by shift: -1, 0, 1.
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
