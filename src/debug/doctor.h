// `lft doctor`: what this build, its libraries and this machine are, and whether they train together. Needs no model and no file.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/io/json.h"
#include "src/train/optimizer.h"

namespace lft {

struct DoctorProblem {
  ErrorKind kind;  // kResource: the machine; kInternal: the numbers
  std::string what;
};
struct DoctorReport {
  Json facts;
  std::vector<DoctorProblem> problems;
};

struct DoctorOptions {
  std::string driver_library = "libcuda.so.1";  // a test's ways in
  std::function<void(int64_t step, AdamW&)> gradients_ready = {};
};
DoctorReport examine(const DoctorOptions& options = {});

/// What to print: a line a fact, then the problems. For a bug report.
std::vector<std::string> doctor_lines(const DoctorReport& report);

}  // namespace lft
