#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "src/base/sum_tree.h"

namespace lft::sum_tree_test {
namespace {

/// The sum of parts [begin, end) as a text: "((0+1)+2)".
std::string tree(Range range) {
  if (range.size() == 1) return std::to_string(range.begin);
  const int64_t middle = middle_of(range);
  return "(" + tree({range.begin, middle}) + "+" + tree({middle, range.end}) + ")";
}

/// The same with a stack, in the way a process adds its parts.
std::string stacked(Range range) {
  std::vector<std::string> waiting;
  const std::vector<int64_t> additions = additions_after(range.size());
  std::string now;
  for (int64_t i = 0; i < range.size(); ++i) {
    now = std::to_string(range.begin + i);
    for (int64_t k = 0; k < additions[static_cast<size_t>(i)]; ++k) {
      now = "(" + waiting.back() + "+" + now + ")";
      waiting.pop_back();
    }
    if (i + 1 < range.size()) waiting.push_back(now);
    EXPECT_LE(std::ssize(waiting), most_waiting(range.size()));
  }
  EXPECT_TRUE(waiting.empty());
  return now;
}

TEST(SumTree, AStackAddsInTheTreesOrder) {
  EXPECT_EQ(tree({0, 2}), "(0+1)");
  EXPECT_EQ(tree({0, 3}), "((0+1)+2)");
  EXPECT_EQ(tree({0, 5}), "(((0+1)+2)+(3+4))");
  for (int64_t count = 1; count <= 70; ++count) EXPECT_EQ(stacked({0, count}), tree({0, count}));
}

TEST(SumTree, AsManyWaitAsTheTreeIsDeep) {
  EXPECT_EQ(most_waiting(1), 0);
  EXPECT_EQ(most_waiting(2), 1);
  EXPECT_EQ(most_waiting(4), 2);
  for (int64_t count = 2; count <= 200; ++count) {
    EXPECT_LE(most_waiting(count), std::ceil(std::log2(count))) << count;
    EXPECT_GE(most_waiting(count), 1) << count;
  }
}

TEST(SumTree, SharesAreContiguousAndEven) {
  for (int64_t ranks = 1; ranks <= 17; ++ranks) {
    for (int64_t total = 0; total <= 70; ++total) {
      int64_t next = 0, least = total, most = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const Range share = share_of(total, rank, ranks);
        EXPECT_EQ(share.begin, next);
        next = share.end;
        least = std::min(least, share.size());
        most = std::max(most, share.size());
      }
      EXPECT_EQ(next, total);
      EXPECT_LE(most - least, is_power_of_two(ranks) ? 1 : 2) << total << " over " << ranks;
      EXPECT_EQ(least > 0, total >= ranks) << total << " over " << ranks;
    }
  }
}

/// Shares that stay empty add nothing.
std::string over_ranks(int64_t total, Range ranks, int64_t count) {
  if (ranks.size() == 1) {
    const Range share = share_of(total, ranks.begin, count);
    return share.size() == 0 ? "" : stacked(share);
  }
  const int64_t middle = middle_of(ranks);
  const std::string left = over_ranks(total, {ranks.begin, middle}, count),
                    right = over_ranks(total, {middle, ranks.end}, count);
  return right.empty() ? left : "(" + left + "+" + right + ")";
}

TEST(SumTree, APowerOfTwoOfRanksAddsWhatOneAdds) {
  for (const int64_t count : {1, 2, 4, 8, 16}) {
    for (int64_t total = 1; total <= 40; ++total)
      EXPECT_EQ(over_ranks(total, {0, count}, count), tree({0, total})) << count;
  }
}

TEST(SumTree, PowersOfTwoAreTold) {
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_TRUE(is_power_of_two(4096));
  for (const int64_t other : {0, -2, 3, 6, 12}) EXPECT_FALSE(is_power_of_two(other));
}

}  // namespace
}  // namespace lft::sum_tree_test
