// How many rows of each of several sources an epoch takes, and which. Plain numbers.
#pragma once
#include <cstdint>
#include <vector>

namespace lft::data {

/// A source of a mixture: rows [begin, begin + rows) of the data set, of which an epoch takes
/// `taken`.
struct SourceShare {
  int64_t begin = 0, rows = 0, taken = 0;
};

/// weight x rows, rounded to the nearest whole number (halves up), at least 1 of a source with
/// rows. -1: more than an epoch may take (2^53).
int64_t rows_taken(double weight, int64_t rows);

/// Sources one after the other, each as often as an epoch takes all its rows, then, of the places
/// that are left, rows chosen by the seed. Choices of following epochs have no row in common until
/// fewer rows than a choice takes are left over; then all may be chosen again. A row is found in
/// O(sources), whatever their sizes.
class EpochItems {
 public:
  EpochItems(std::vector<SourceShare> shares, uint64_t seed, int64_t epoch);
  int64_t size() const;
  /// The row of the data set that an item is; each row of a source as often as another, or once
  /// more.
  int64_t row(int64_t item) const;

 private:
  std::vector<SourceShare> shares_;
  uint64_t seed_;
  int64_t epoch_;
};

}  // namespace lft::data
