// `lft doctor`: what this build, its libraries and this machine are, and whether they train
// together. Needs no model and no file.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/io/json.h"
#include "src/train/machine/cuda_driver.h"
#include "src/train/optim/optimizer.h"

namespace lft::debug {

struct DoctorProblem {
  ErrorKind kind;  // kResource: the machine; kInternal: the numbers
  std::string what;
};
struct DoctorReport {
  io::Json facts;
  std::vector<DoctorProblem> problems;
};

struct DoctorOptions {
  std::string driver_library = "libcuda.so.1";  // a test's ways in
  std::function<void(int64_t step, train::Optimizer&)> gradients_ready = {};
};
DoctorReport examine(const DoctorOptions& options = {});

/// A training step small enough to be known in closed form: two linear layers with LoRA, all
/// numbers whole. It proves that products, backward pass, loss scaler, optimizer and device work
/// together in a precision.
struct StepCheck {
  std::string device, precision;  // "cpu", "fp16"
  std::vector<std::string>
      failures;     // what came out otherwise than the closed form; empty: it passed
  double loss = 0;  // of the good step
};

/// First a step that overflows and must change nothing (FP16: by its loss scale, which then backs
/// off; else by its input), then a good one whose loss and gradients must be exact and whose
/// weights and moments must be AdamW's first ones. What LibTorch throws passes through.
/// `gradients_ready`: a test's way in, before the gradients are checked.
StepCheck check_step(
    at::Device device, at::ScalarType compute,
    const std::function<void(int64_t step, train::Optimizer&)>& gradients_ready = {});

/// What has to be there, and to fit together, before lft computes on a GPU with its own kernels.
struct GpuAccess {
  train::CudaDriver driver;
  std::string visible;  // CUDA_VISIBLE_DEVICES; empty where it is not set
  std::string toolkit;  // that compiled lft's kernels, "13.0.88"; empty: none are in this build
  std::string architectures;      // they were compiled for, as CMake has them: "75-real,80-real,90"
  bool has_cuda_library = false;  // beside the LibTorch in use
  std::string unused;             // unused_gpu_reason()
  bool used = false;              // default_device() is a GPU
};
/// The first thing that is missing or does not fit, in a sentence; empty: nothing.
std::string gpu_hindrance(const GpuAccess& access);
/// Whether code compiled for these architectures runs on a GPU of this compute capability, 10 *
/// major
/// + minor: machine code on its own major version from its minor version on, and the PTX of one
/// that is not "-real" on all later ones.
bool runs_on(const std::string& architectures, int capability);

/// What to print: a line a fact, then the problems. For a bug report.
std::vector<std::string> doctor_lines(const DoctorReport& report);

}  // namespace lft::debug
