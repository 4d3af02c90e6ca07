// The order in which the numbered parts of a sum are added: a binary tree that halves its range,
// the larger half first. This is only the order; no numbers are added here.
#pragma once
#include <cstdint>
#include <vector>

namespace lft {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The contiguous part of [0, total) of one of `ranks`. Sizes differ by at most one, and no part is
/// empty if total >= ranks. If `ranks` is a power of two, the part is a node of the tree.
Range share_of(int64_t total, int64_t rank, int64_t ranks);

/// The two halves of a node: [begin, middle) and [middle, end).
int64_t middle_of(Range range);

/// For each part i of `count`, the number of additions after it arrives. The parts arrive in order;
/// pending sums are a stack, and the last one is on top.
std::vector<int64_t> additions_after(int64_t count);
/// The largest number of pending sums.
int64_t most_waiting(int64_t count);

/// True for 1, 2, 4, ...
bool is_power_of_two(int64_t value);

}  // namespace lft
