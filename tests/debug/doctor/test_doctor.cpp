// The doctor's training step against its closed form, its report of a faulty one, and the values
// it reads from a driver.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <limits>

#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/debug/doctor/doctor.h"
#include "src/debug/doctor/doctor_gpu.h"
#include "src/debug/doctor/doctor_lines.h"
#include "src/debug/doctor/doctor_step.h"
#include "src/io/files.h"
#include "src/train/machine/cuda_driver.h"
#include "src/train/machine/device.h"

namespace lft::doctor_test {
using namespace lft::checkpoint;
using namespace lft::debug;
using namespace lft::io;
using namespace lft::train;
namespace {

class DoctorStep : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static std::vector<std::string> failures(
      const std::function<void(int64_t, Optimizer&)>& plant = {}) {
    return check_step(default_device(), GetParam(), plant).failures;
  }
};

/// 183 was computed by torch in float64 from the same whole numbers.
TEST_P(DoctorStep, ComputesTheClosedForm) {
  const StepCheck check = check_step(default_device(), GetParam());
  EXPECT_EQ(check.failures, std::vector<std::string>{});
  EXPECT_EQ(check.loss, 183.0);
}

TEST_P(DoctorStep, ASlightlyWrongGradientIsNamed) {
  const auto found = failures([](int64_t step, Optimizer& optimizer) {
    if (step == 2) optimizer.slots()[3].param.tensor.mutable_grad().mul_(1.01);
  });
  ASSERT_FALSE(found.empty());
  EXPECT_NE(join(found, "\n").find("the gradient of second.lora_B.weight[0] is "),
            std::string::npos)
      << join(found, "\n");
}

TEST_P(DoctorStep, AnOverflowThatIsNotSeenIsNamed) {
  const auto found = failures([](int64_t step, Optimizer& optimizer) {
    if (step != 1) return;
    for (Slot& slot : optimizer.slots()) slot.param.tensor.mutable_grad().nan_to_num_(0, 0, 0);
  });
  // Below FP16 the loss itself is infinite, which is still detected.
  if (GetParam() != at::kHalf) {
    EXPECT_EQ(found, std::vector<std::string>{});
    return;
  }
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(), "an overflow was not seen");
}

TEST_P(DoctorStep, AGoodStepThatIsSkippedIsNamed) {
  const auto found = failures([](int64_t step, Optimizer& optimizer) {
    if (step == 2)
      optimizer.slots()[0].param.tensor.mutable_grad().fill_(
          std::numeric_limits<float>::infinity());
  });
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(), "a good step was skipped");
}

TEST_P(DoctorStep, WeightsThatMovedInASkippedStepAreNamed) {
  const auto found = failures([](int64_t step, Optimizer& optimizer) {
    const at::NoGradGuard no_grad;
    if (step == 1) optimizer.slots()[1].param.tensor.add_(1e-6);
  });
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.front().find("first.lora_B.weight behind a skipped step[0]"), std::string::npos)
      << found.front();
}

TEST_P(DoctorStep, AWrongMomentIsNamed) {
  const auto found = failures([](int64_t step, Optimizer& optimizer) {
    if (step == 2) optimizer.slots()[2].moment("exp_avg_sq").add_(1e-3);
  });
  EXPECT_NE(join(found, "\n").find("the second moment of second.lora_A.weight[0]"),
            std::string::npos)
      << join(found, "\n");
}

INSTANTIATE_TEST_SUITE_P(Precisions, DoctorStep,
                         ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) {
                           return info.param == at::kFloat      ? "fp32"
                                  : info.param == at::kBFloat16 ? "bf16"
                                                                : "fp16";
                         });

TEST(Doctor, HealthyMachineNeedsNoFileAndSaysWhatItIs) {
  const DoctorReport report = examine();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front().what;
  EXPECT_EQ(report.facts["lft"]["version"], lft_version());
  EXPECT_EQ(report.facts["libtorch"]["version"], torch_version());
  EXPECT_EQ(report.facts["devices"][0]["device"], "cpu");
  EXPECT_GT(report.facts["system"]["memory_bytes"], 1e8);
  EXPECT_GE(report.facts["system"]["memory_bytes"], report.facts["system"]["memory_free_bytes"]);
  int passed = 0;
  for (const Json& step : report.facts["steps"])
    passed += step["device"] == "cpu" && step["result"] == "passed" ? 1 : 0;
  EXPECT_EQ(passed, 3);
  const std::string text = join(doctor_lines(report), "\n");
  EXPECT_TRUE(
      path_exists(report.facts["libtorch"]["folder"].get<std::string>() + "/libtorch_cpu.so"))
      << text;
  for (const char* piece : {"lft         0.", "LibTorch    2.", "GPU         ", "processor   ",
                            "cpu fp16: passed", "healthy     ", "bug report"})
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in\n" << text;
}

TEST(Doctor, WrongNumbersAreAProblemOfTheirOwnKind) {
  const DoctorReport report = examine({.gradients_ready = [](int64_t step, Optimizer& optimizer) {
    if (step == 2) optimizer.slots()[0].param.tensor.mutable_grad().neg_();
  }});
  ASSERT_FALSE(report.problems.empty());
  EXPECT_EQ(report.problems.front().kind, ErrorKind::kInternal);
  EXPECT_NE(report.problems.front().what.find(
                "computes wrong numbers: the gradient of first.lora_A.weight"),
            std::string::npos)
      << report.problems.front().what;
  EXPECT_NE(join(doctor_lines(report), "\n").find("problem     a training step on "),
            std::string::npos);
}

TEST(Doctor, ADeviceThatFailsIsAProblemOfTheMachine) {
  const DoctorReport report = examine({.gradients_ready = [](int64_t, Optimizer&) {
    throw std::runtime_error("the device fell off the bus");
  }});
  ASSERT_FALSE(report.problems.empty());
  EXPECT_EQ(report.problems.front().kind, ErrorKind::kResource);
  EXPECT_NE(report.problems.front().what.find("fell off the bus"), std::string::npos);
}

TEST(Doctor, ReadsDevicesFromADriver) {
  const CudaDriver driver = probe_driver(LFT_FAKE_CUDA);
  EXPECT_TRUE(driver.found);
  EXPECT_EQ(driver.problem, "");
  EXPECT_EQ(driver.cuda, 12040);
  EXPECT_EQ(cuda_text(driver.cuda), "12.4");
  ASSERT_EQ(driver.devices.size(), 2u);
  EXPECT_EQ(driver.devices[0].name, "Old Card");
  EXPECT_EQ(driver.devices[0].capability, 75);
  EXPECT_EQ(driver.devices[1].memory, 80e9);
  EXPECT_FALSE(probe_driver("libthere-is-no-such-driver.so").found);
  EXPECT_EQ(probe_driver("libm.so.6").problem, "it is not an NVIDIA driver");
}

TEST(Doctor, ARunRemembersItsGpu) {
  const CudaDriver driver = probe_driver(LFT_FAKE_CUDA);
  const Json old_card = device_json(at::Device(at::kCUDA, 0), driver),
             new_card = device_json(at::Device(at::kCUDA, 1), driver);
  EXPECT_EQ(new_card["gpu"], "New Card");
  EXPECT_EQ(new_card["capability"], "9.0");
  EXPECT_EQ(new_card["cuda"], "12.4");
  EXPECT_TRUE(new_card.contains("driver"));
  // Another card is a warning when a run is resumed, and its probe loss need not be equal to the
  // last bit.
  Checkpoint saved;
  saved.environment = old_card;
  EXPECT_EQ(environment_warning(saved, old_card), "");
  EXPECT_NE(environment_warning(saved, new_card).find("gpu was \"Old Card\" and is \"New Card\""),
            std::string::npos)
      << environment_warning(saved, new_card);
  EXPECT_FALSE(device_json(at::Device(at::kCPU)).contains("gpu"));
}

TEST(Doctor, SpeedOfADtypeFollowsTheComputeCapability) {
  if (default_device().is_cuda()) GTEST_SKIP() << "a real GPU is here";
  const DoctorReport report = examine({.driver_library = LFT_FAKE_CUDA});
  const Json &old_card = report.facts["devices"][1], &new_card = report.facts["devices"][2];
  EXPECT_EQ(old_card["device"], "cuda:0");
  EXPECT_EQ(old_card["bf16"]["speed"], "none");
  EXPECT_EQ(old_card["bf16"]["why"], "compute capability 7.5 lacks bf16");
  EXPECT_EQ(old_card["fp16"]["speed"], "fast");
  EXPECT_EQ(new_card["bf16"]["speed"], "fast");
  const std::string text = join(doctor_lines(report), "\n");
  EXPECT_NE(text.find("cuda:1 New Card, compute capability 9.0, 80.0 GB: bf16 fast, fp16 fast"),
            std::string::npos)
      << text;
  // A GPU that LibTorch does not use is reported as a problem of the machine, with its reason.
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].kind, ErrorKind::kResource);
  EXPECT_NE(report.problems[0].what.find("a GPU is here, but"), std::string::npos);
}

/// All requirements of a GPU, for tests that remove one.
GpuAccess fitting_gpu() {
  return {.driver = {.found = true,
                     .problem = "",
                     .version = "580.1",
                     .cuda = 13000,
                     .devices = {{"New Card", 90, 80e9}}},
          .visible = "",
          .toolkit = "13.0.88",
          .architectures = "75-real,80-real,90",
          .has_cuda_library = true,
          .unused = "",
          .used = true};
}

TEST(Doctor, WhyAGpuIsNotUsedIsTheFirstThingThatDoesNotFit) {
  EXPECT_EQ(gpu_hindrance(fitting_gpu()), "");
  const auto without = [](const std::function<void(GpuAccess&)>& change) {
    GpuAccess access = fitting_gpu();
    change(access);
    return gpu_hindrance(access);
  };
  const auto no_driver = [](GpuAccess& a) {
    a.driver = {};
    a.driver.problem = "libcuda.so.1: no such file";
  };
  EXPECT_EQ(without(no_driver), "there is no NVIDIA driver: libcuda.so.1: no such file");
  EXPECT_EQ(without([](GpuAccess& a) { a.driver.problem = "system not yet initialized"; }),
            "the NVIDIA driver does not start: system not yet initialized");
  const auto hide = [](GpuAccess& a) {
    a.driver.devices.clear();
    a.visible = "-1";
  };
  EXPECT_EQ(without(hide), "the NVIDIA driver finds no device, with CUDA_VISIBLE_DEVICES=-1");
  EXPECT_EQ(without([](GpuAccess& a) { a.driver.cuda = 12090; }),
            "a GPU is here, but its driver runs CUDA up to 12.9 and lft was built with 13.0");
  const auto unopened = [](bool there) {
    return [there](GpuAccess& a) {
      a.used = false;
      a.has_cuda_library = there;
      a.unused =
          "LibTorch's CUDA library cannot be opened: libcudnn.so.9: cannot open shared object file";
    };
  };
  EXPECT_EQ(without(unopened(true)),
            "a GPU is here, but LibTorch's CUDA library cannot be opened: libcudnn.so.9: cannot "
            "open shared object file");
  EXPECT_EQ(without(unopened(false)).find("a GPU is here, but this LibTorch is one without CUDA: "),
            0u);
  const std::string no_kernels = without([](GpuAccess& a) { a.toolkit = ""; });
  EXPECT_EQ(no_kernels.find("a GPU is here, but this build has no CUDA kernels"), 0u);
  EXPECT_EQ(without([](GpuAccess& a) { a.driver.devices[0].capability = 70; }),
            "a GPU is here, but it has compute capability 7.0, and the kernels of this build are "
            "for 75-real,80-real,90: set CMAKE_CUDA_ARCHITECTURES");
}

TEST(Doctor, MachineCodeRunsOnItsMajorVersionAndPtxOnAllLater) {
  const std::string lists[] = {"75-real,80-real,90", "90-real", "90a-real", "80-virtual"};
  const std::vector<std::vector<int>> run = {
      {75, 80, 86, 89, 90, 100, 120}, {90}, {90}, {80, 86, 90, 100}};
  const std::vector<std::vector<int>> not_run = {{60, 70}, {75, 89, 100}, {89, 100}, {70, 75}};
  for (size_t i = 0; i < run.size(); ++i) {
    for (const int capability : run[i])
      EXPECT_TRUE(runs_on(lists[i], capability)) << lists[i] << " " << capability;
    for (const int capability : not_run[i])
      EXPECT_FALSE(runs_on(lists[i], capability)) << lists[i] << " " << capability;
  }
}

TEST(Doctor, ADriverThatIsNotThereIsNamedInTheLoadersWords) {
  const CudaDriver driver = probe_driver("libthere-is-no-such-driver.so");
  EXPECT_NE(driver.problem.find("libthere-is-no-such-driver.so: cannot open shared object file"),
            std::string::npos)
      << driver.problem;
  const DoctorReport report = examine({.driver_library = "libthere-is-no-such-driver.so"});
  EXPECT_TRUE(report.problems.empty());
  EXPECT_NE(join(doctor_lines(report), "\n").find("there is no NVIDIA driver: libthere-is-no"),
            std::string::npos);
}

TEST(Doctor, ADriverThatDoesNotStartIsNamedWithItsReason) {
  setenv("FAKE_CUDA_FAILS", "1", 1);
  const CudaDriver driver = probe_driver(LFT_FAKE_CUDA);
  unsetenv("FAKE_CUDA_FAILS");
  EXPECT_EQ(driver.problem, "no CUDA-capable device is detected");
  EXPECT_TRUE(driver.devices.empty());
}

TEST(Doctor, CudaVersionsCompareAsNumbers) {
  EXPECT_EQ(cuda_number("13.0.88"), 13000);
  EXPECT_EQ(cuda_number("12.4"), 12040);
  EXPECT_EQ(cuda_number(""), 0);
  EXPECT_EQ(cuda_number("13"), 0);
  EXPECT_EQ(cuda_text(13000), "13.0");
}

}  // namespace
}  // namespace lft::doctor_test
