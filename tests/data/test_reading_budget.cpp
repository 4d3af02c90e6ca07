// Threads that decode images together use at most the allowed number of bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "src/data/reading_budget.h"

namespace lft::data {
namespace {

TEST(ReadingBudget, IsUnlimitedUntilANumberIsSaid) {
  ReadingBudget budget;
  const ReadingBudget::Share first(budget, 1'000'000'000'000), second(budget, INT64_MAX / 4);
  EXPECT_EQ(budget.held(), 1'000'000'000'000 + INT64_MAX / 4);
}

TEST(ReadingBudget, ThreadsHoldNoMoreThanIsAllowed) {
  ReadingBudget budget;
  budget.allow(100);
  std::atomic<int64_t> held{0}, most{0};
  const auto work = [&](int64_t bytes) {
    for (int i = 0; i < 200; ++i) {
      const ReadingBudget::Share share(budget, bytes);
      const int64_t now = held += bytes;
      int64_t seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      held -= bytes;
    }
  };
  std::vector<std::thread> threads;
  for (const int64_t bytes : {10, 30, 40, 60, 99, 100}) threads.emplace_back(work, bytes);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 100);
  EXPECT_EQ(budget.held(), 0);
}

TEST(ReadingBudget, WhatNeedsMoreThanAllIsReadAlone) {
  ReadingBudget budget;
  budget.allow(100);
  std::atomic<bool> read{false};
  std::thread large;
  {
    const ReadingBudget::Share small(budget, 1);
    large = std::thread([&] {
      const ReadingBudget::Share share(budget, 1000);
      EXPECT_EQ(budget.held(), 1000);
      read = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(read);
  }
  large.join();
  EXPECT_TRUE(read);
}

TEST(ReadingBudget, ALargerBudgetLetsWaitingOnesIn) {
  ReadingBudget budget;
  budget.allow(10);
  const ReadingBudget::Share held(budget, 10);
  std::thread waiting([&] { const ReadingBudget::Share share(budget, 10); });
  budget.allow(20);
  waiting.join();
  EXPECT_EQ(budget.held(), 10);
}

}  // namespace
}  // namespace lft::data
