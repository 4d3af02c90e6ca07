#include "src/base/sum_tree.h"

#include <algorithm>

namespace lft {
namespace {

void count_additions(Range range, std::vector<int64_t>& additions) {
  if (range.size() <= 1) return;
  const int64_t middle = middle_of(range);
  count_additions({range.begin, middle}, additions);
  count_additions({middle, range.end}, additions);
  ++additions[static_cast<size_t>(range.end - 1)];
}

}  // namespace

int64_t middle_of(Range range) { return range.begin + (range.size() + 1) / 2; }

Range share_of(int64_t total, int64_t rank, int64_t ranks) {
  Range range{0, total};
  while (ranks > 1) {
    const int64_t first = (ranks + 1) / 2;  // ranks that share the first half
    const int64_t middle = ranks % 2 == 0
                               ? middle_of(range)
                               : range.begin + (range.size() * first + ranks - 1) / ranks;
    if (rank < first) {
      range.end = middle;
      ranks = first;
    } else {
      range.begin = middle;
      rank -= first;
      ranks -= first;
    }
  }
  return range;
}

std::vector<int64_t> additions_after(int64_t count) {
  std::vector<int64_t> additions(static_cast<size_t>(count));
  count_additions({0, count}, additions);
  return additions;
}

int64_t most_waiting(int64_t count) {
  int64_t waiting = 0, most = 0;
  const std::vector<int64_t> additions = additions_after(count);
  for (size_t i = 0; i + 1 < additions.size(); ++i) {
    waiting += 1 - additions[i];
    most = std::max(most, waiting);
  }
  return most;
}

bool is_power_of_two(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

}  // namespace lft
