// Bugs planted on purpose, each with the command that must name it: a table a file, run by
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

/// How a command ended and all that it wrote, with its scratch folder as DIR.
struct Told {
  int code = 0;
  std::string text;
};

struct PlantedBug {
  std::string name;     // of the test
  std::string planted;  // how and where
  std::string command;  // what is run
  int code = 0;         // its exit code
  std::vector<std::string>
      says;  // all in what it wrote; the first is no part of what it writes without the bug
  std::function<Told(bool planted)> run;
};

class Planted : public ::testing::TestWithParam<PlantedBug> {};

inline std::string planted_name(const ::testing::TestParamInfo<PlantedBug>& info) {
  return info.param.name;
}
inline void PrintTo(const PlantedBug& bug, std::ostream* out) {
  *out << bug.planted << ", " << bug.command;
}

/// What main would make of it: the exit code, what was printed, and the error's block after that.
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
