// The order in which the numbered parts of a sum are added, whoever adds which: a binary tree that
// halves its range, the larger half first. Pure arithmetic, no numbers are added here.
#pragma once
#include <cstdint>
#include <vector>

namespace lft {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The part of [0, total) that one of `ranks` works on: contiguous, of sizes that differ by at most
/// one, none empty where total >= ranks. Where `ranks` is a power of two it is a node of the tree,
/// so that its sum is one that the whole tree adds, too.
Range share_of(int64_t total, int64_t rank, int64_t ranks);

/// The two halves of a node: [begin, middle) and [middle, end).
int64_t middle_of(Range range);

/// How many sums are added up after part i of `count` is there, for each i. The parts come in
/// order; what waits is a stack, and what is added last is on its top.
std::vector<int64_t> additions_after(int64_t count);
/// How many sums wait at the most.
int64_t most_waiting(int64_t count);

/// True for 1, 2, 4, ...
bool is_power_of_two(int64_t value);

}  // namespace lft
