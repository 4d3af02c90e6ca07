// The PTX that this build ships, translated to C++ and run thread by thread: the cases of
// tests/kernels against the references, and the faults that the runtime must report.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/kernels/ptx/ptx.h"

namespace lft::ptx {
namespace {

/// 32 floats on the "device".
class Ptx : public ::testing::Test {
 protected:
  Ptx() {
    cudaMalloc(&data_, 128);
    for (int i = 0; i < 32; ++i) values()[i] = static_cast<float>(i);
  }
  ~Ptx() override { cudaFree(data_); }
  float* values() const { return static_cast<float*>(data_); }
  void launch(const char* name, unsigned threads = 32) const {
    void* address = data_;
    void* arguments[] = {&address};
    ptx::launch(name, 1, threads, arguments);
  }

 private:
  void* data_ = nullptr;
};

TEST_F(Ptx, RunsAnEntry) {
  launch("warp_sum");
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values()[i], 31 * 32 / 2);
}

TEST_F(Ptx, ReportsFaults) {
  EXPECT_DEATH(launch("outside"), "outside of global memory: 4 bytes .* of outside");
  EXPECT_DEATH(launch("before"), "outside of global memory: 16 bytes");
  EXPECT_DEATH(launch("misaligned"), "misaligned access to global memory: 8 bytes");
  EXPECT_DEATH(launch("outside_shared"), "outside of shared memory: 4 bytes");
  EXPECT_DEATH(launch("half_a_barrier"), "a barrier that not every thread reaches");
  EXPECT_DEATH(launch("warp_sum", 64), "more threads than .maxntid");
  EXPECT_DEATH(launch("missing"), "an entry that is not in the PTX");
}

TEST_F(Ptx, SharedMemoryIsNotZeroAtFirst) {
  launch("unwritten_shared");
  EXPECT_TRUE(std::isnan(values()[0]));
}

/// They have the documented error in both directions, the same for equal operands.
TEST_F(Ptx, ApproximateInstructionsAreNotExact) {
  int above = 0, below = 0;
  for (int i = 0; i < 100; ++i) {
    const float x = 0.01f * static_cast<float>(i), exact = std::exp2(x), got = approximate_exp2(x);
    above += got > exact ? 1 : 0;
    below += got < exact ? 1 : 0;
    EXPECT_EQ(got, approximate_exp2(x));
    EXPECT_NEAR(got, exact, 0x1p-22 * exact + 0x1p-23);
    EXPECT_NEAR(approximate_rsqrt(1 + x), 1 / std::sqrt(1 + x), 0x1.8p-22);
    EXPECT_NEAR(approximate_quotient(x, 3), x / 3, 0x1.8p-23);
  }
  EXPECT_GT(above, 20);
  EXPECT_GT(below, 20);
  EXPECT_EQ(approximate_exp2(-INFINITY), 0);
  EXPECT_EQ(approximate_quotient(1, INFINITY), 0);
  EXPECT_TRUE(std::isnan(approximate_rsqrt(-1)));
}

/// After all tests.
class EveryEntryRan : public ::testing::Environment {
  void TearDown() override {
    if (::testing::GTEST_FLAG(filter) != LFT_PTX_FILTER || ::testing::GTEST_FLAG(list_tests))
      return;
    for (const std::string& name : not_run()) {
      if (name.starts_with("_Z"))  // those of faults.ptx ran in processes that ended
        ADD_FAILURE() << "no case runs the entry " << name;
    }
  }
};
const auto* const every_entry_ran = ::testing::AddGlobalTestEnvironment(new EveryEntryRan);

}  // namespace
}  // namespace lft::ptx
