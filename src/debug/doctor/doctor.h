// `lft doctor`: describes the build, its libraries and the machine, and checks them by training
// steps. Needs no model and no file.
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
  std::string driver_library = "libcuda.so.1";  // for tests
  std::function<void(int64_t step, train::Optimizer&)> gradients_ready = {};
};
DoctorReport examine(const DoctorOptions& options = {});

}  // namespace lft::debug
