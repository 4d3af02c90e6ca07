// The settings of LibTorch for a GPU, which a build without one can read.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "src/train/machine/device.h"

namespace lft::device_settings_test {
namespace {

/// cuBLAS adds in float32, also where it splits a sum. A plan of cuDNN's attention takes 0.1 s for
/// each new shape and thread, and is kept for ever.
TEST(CudaLibraries, AddInFloat32AndAttendWithoutCudnn) {
  at::Context& context = at::globalContext();
  context.setSDPUseCuDNN(true);
  context.setAllowBF16ReductionCuBLAS(true);
  context.setAllowFP16ReductionCuBLAS(true);
  train::choose_cuda_libraries();
  EXPECT_FALSE(context.userEnabledCuDNNSDP());
  constexpr auto kFloatSums = at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
  EXPECT_EQ(context.allowBF16ReductionCuBLAS(), kFloatSums);
  EXPECT_EQ(context.allowFP16ReductionCuBLAS(), kFloatSums);
}

}  // namespace
}  // namespace lft::device_settings_test
