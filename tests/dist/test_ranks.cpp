// Messages between processes, and the order of their sums.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "dist/threads.h"
#include "src/base/sum_tree.h"
#include "src/dist/ranks.h"

namespace lft::ranks_test {
namespace {

using dist::Ranks;
using test::run_ranks;

class Worlds : public ::testing::TestWithParam<int64_t> {};

TEST_P(Worlds, EachHearsWhatEachSaysShortOrLong) {
  const int64_t count = GetParam();
  std::atomic<int64_t> heard = 0;
  run_ranks(count, [&](Ranks& ranks) {
    ranks.at("a test");
    for (const size_t size : {size_t{0}, size_t{3}, size_t{1008}, size_t{1009}, size_t{100'000}}) {
      // Different lengths, so that short messages are combined with long ones.
      const auto text = [&](int64_t rank) {
        return std::string(size + static_cast<size_t>(rank) * 7, static_cast<char>('a' + rank));
      };
      const std::vector<std::string> all = ranks.exchange(text(ranks.rank()));
      ASSERT_EQ(all.size(), static_cast<size_t>(count));
      for (int64_t rank = 0; rank < count; ++rank)
        heard += all[static_cast<size_t>(rank)] == text(rank);
      EXPECT_EQ(ranks.from_first(text(ranks.rank())), text(0));
    }
  });
  EXPECT_EQ(heard, 5 * count * count);
}

TEST_P(Worlds, ATensorOfRankZeroIsEverybodys) {
  run_ranks(GetParam(), [&](Ranks& ranks) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble, at::kByte}) {
      at::Tensor tensor = at::full({3, 5}, ranks.rank() + 1, type);
      ranks.broadcast(tensor);
      EXPECT_TRUE(at::equal(tensor, at::full({3, 5}, 1, type)));
    }
  });
}

/// The error of the lowest failing rank becomes the error of all ranks.
TEST_P(Worlds, AnErrorOfOneIsTheErrorOfAll) {
  const int64_t count = GetParam(), bad = count - 1;
  std::atomic<int64_t> told = 0;
  const ErrorInfo block{"a bad sample", "row 7\xff", "nothing", "an image", "fix it"};
  run_ranks(count, [&](Ranks& ranks) {
    const auto expect = [&](const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_EQ(error.info().what, block.what);
      EXPECT_EQ(error.info().next, block.next);
      ++told;
    };
    ranks.exchange("well");
    if (ranks.rank() == bad) {
      expect(ranks.failed(Error(ErrorKind::kInput, block)));
    } else {
      try {
        ranks.exchange("still well");
      } catch (const Error& error) {
        expect(error);
      }
    }
    try {  // for any later message
      ranks.exchange("more");
    } catch (const Error& error) {
      expect(error);
    }
    EXPECT_EQ(ranks.failed(Error(ErrorKind::kInternal, "late")).info().what, "late");
  });
  EXPECT_EQ(told, 2 * count);
}

/// The reference sums in the tree's order on one thread.
at::Tensor tree_sum(const std::vector<at::Tensor>& parts, Range range) {
  if (range.size() == 1) return parts[static_cast<size_t>(range.begin)].clone();
  const int64_t middle = middle_of(range);
  return tree_sum(parts, {range.begin, middle}) + tree_sum(parts, {middle, range.end});
}

TEST_P(Worlds, SumsHaveTheBitsOfTheTree) {
  const int64_t count = GetParam();
  for (const int64_t size : {1, 3, 8, 1000, 4099}) {
    std::vector<at::Tensor> parts;
    at::manual_seed(7);
    for (int64_t rank = 0; rank < count; ++rank) parts.push_back(at::randn({size}) * 1e3);
    const at::Tensor expected = tree_sum(parts, {0, count});
    run_ranks(count, [&](Ranks& ranks) {
      at::Tensor flat = parts[static_cast<size_t>(ranks.rank())].clone();
      ranks.sum(flat);
      EXPECT_TRUE(at::equal(flat, expected)) << size << ", rank " << ranks.rank();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Worlds, ::testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(Ranks, ThoseThatDoNotComeAreNamed) {
  const int port = test::free_port();
  const dist::Place place{.rank = 0, .ranks = 3, .address = "127.0.0.1", .port = port};
  try {
    Ranks ranks(place, std::chrono::seconds(1));
    FAIL() << "there is one process of three";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResource);
    EXPECT_EQ(error.info().found, "no rank 1, 2");
  }
}

TEST(Ranks, APortThatIsTakenIsNamed) {
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size);
  const dist::Place place{
      .rank = 0, .ranks = 2, .address = "127.0.0.1", .port = ntohs(address.sin_port)};
  try {
    Ranks ranks(place, std::chrono::seconds(1));
    ADD_FAILURE() << "the port is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResource);
    EXPECT_EQ(error.info().where, "127.0.0.1:" + std::to_string(place.port));
  }
  close(taken);
}

}  // namespace
}  // namespace lft::ranks_test
