// The report of `lft doctor` as text.
#pragma once
#include <string>
#include <vector>

#include "src/debug/doctor/doctor.h"

namespace lft::debug {

/// Lines to print for a bug report: one per fact, then the problems.
std::vector<std::string> doctor_lines(const DoctorReport& report);

}  // namespace lft::debug
