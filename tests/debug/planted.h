// Bugs planted on purpose, each with the command that must name it: one table per file, run by
// test_planted.cpp.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "debug/stored_model.h"
#include "src/base/errors.h"

namespace lft::test {

/// A command's exit code and complete output, with its scratch folder shown as DIR.
struct Told {
  int code = 0;
  std::string text;
};

struct PlantedBug {
  std::string name;     // test name
  std::string planted;  // how and where
  std::string command;  // the command
  int code = 0;         // expected exit code
  std::vector<std::string>
      says;  // all occur in its output; the first does not occur in the output without the bug
  std::function<Told(bool planted)> run;
};

class Planted : public ::testing::TestWithParam<PlantedBug> {};

inline std::string planted_name(const ::testing::TestParamInfo<PlantedBug>& info) {
  return info.param.name;
}
inline void PrintTo(const PlantedBug& bug, std::ostream* out) {
  *out << bug.planted << ", " << bug.command;
}

/// The result of main: the exit code, the output, then the error's block.
inline Told tell(const std::string& dir, const std::function<int()>& command) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Told told;
  std::string block;
  try {
    told.code = command();
  } catch (const Error& error) {
    told.code = static_cast<int>(error.kind());
    block = format_error(error);
  }
  told.text =
      ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr() + block;
  for (size_t at; !dir.empty() && (at = told.text.find(dir)) != std::string::npos;)
    told.text.replace(at, dir.size(), "DIR");
  return told;
}

}  // namespace lft::test
