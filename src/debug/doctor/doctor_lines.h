// The report of `lft doctor` as text.
#pragma once
#include <string>
#include <vector>

#include "src/debug/doctor/doctor.h"

namespace lft::debug {

/// What to print: a line a fact, then the problems. For a bug report.
std::vector<std::string> doctor_lines(const DoctorReport& report);

}  // namespace lft::debug
