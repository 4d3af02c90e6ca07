// Selects the rows of several sources for an epoch. Plain numbers.
#pragma once
#include <cstdint>
#include <vector>

namespace lft::data {

/// A source of a mixture: rows [begin, begin + rows) of the data set, of which `taken` are in an
/// epoch.
struct SourceShare {
  int64_t begin = 0, rows = 0, taken = 0;
};

/// weight x rows, rounded to the nearest whole number (halves up), and at least 1 for a source with
/// rows. -1: more than an epoch may contain (2^53).
int64_t rows_taken(double weight, int64_t rows);

/// The items of an epoch: for each source all its rows as often as they fit, then rows selected by
/// the seed for the fractional part. Consecutive epochs select different rows until all have been
/// selected. A row is found in O(sources).
class EpochItems {
 public:
  EpochItems(std::vector<SourceShare> shares, uint64_t seed, int64_t epoch);
  int64_t size() const;
  /// The row of an item. The counts of two rows of a source differ by at most one.
  int64_t row(int64_t item) const;

 private:
  std::vector<SourceShare> shares_;
  uint64_t seed_;
  int64_t epoch_;
};

}  // namespace lft::data
