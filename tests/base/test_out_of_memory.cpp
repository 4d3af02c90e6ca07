// An exception that cannot propagate still ends as an error, not as a crash.
#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>
#include <thread>

#include "src/base/out_of_memory.h"

namespace lft::out_of_memory_test {
namespace {

template <class Thrown>
void fail() {
  throw Thrown();
}

template <class Thrown>
struct Throws {
  ~Throws() noexcept { fail<Thrown>(); }
};

template <class Thrown>
void destroy_in_a_thread() {
  end_where_memory_runs_out();
  std::thread([] { const Throws<Thrown> goes; }).join();
}

struct Other : std::runtime_error {
  Other() : std::runtime_error("another cause") {}
};

TEST(OutOfMemory, ADestructorThatFindsNoneEndsTheProgramWithItsExitCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      destroy_in_a_thread<std::bad_alloc>(), ::testing::ExitedWithCode(6),
      "^error: out of memory\n  found: std::bad_alloc\n  next: free memory, or raise .*\n$");
}

TEST(OutOfMemory, WhateverElseMayNotBeThrownIsAFaultAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(destroy_in_a_thread<Other>(), ::testing::KilledBySignal(SIGABRT), "another cause");
}

}  // namespace
}  // namespace lft::out_of_memory_test
